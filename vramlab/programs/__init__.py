"""Programs that train, in plain PyTorch, and what is known of them in closed form."""
