"""Explain a real GPU's out-of-memory error. Nothing here imports torch.

message.py    the numbers of an error message, and what they suggest
"""
