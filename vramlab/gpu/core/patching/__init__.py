"""Change other people's modules while a GPU is attached, and put back what was there."""
