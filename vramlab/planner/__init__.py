"""Plan a training run: what each GPU holds, whether it fits, and what to change if it does not."""
