"""Arithmetic of CUDA, its libraries and PyTorch's CUDA code. Nothing here imports torch."""
