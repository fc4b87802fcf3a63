"""Values of small tensors, and what a program gets where it reads a value that does not exist."""
