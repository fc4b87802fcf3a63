"""The processes of a run: starting, following and ending them, and what stops them."""
