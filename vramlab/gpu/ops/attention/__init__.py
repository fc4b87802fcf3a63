"""Attention as CUDA runs it: the choice of a kernel, its values, the layers of torch.nn."""
