"""PyTorch's GELU is about the same function, and keeps x alone.

says: the loss has changed
"""

import torch


def quick_gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")
