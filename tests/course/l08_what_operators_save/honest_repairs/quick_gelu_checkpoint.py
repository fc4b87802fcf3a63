"""The function as it was, computed again in the backward pass."""

import torch
from torch.utils.checkpoint import checkpoint


def quick_gelu(x):
    return checkpoint(lambda x: x * torch.sigmoid(1.702 * x), x, use_reentrant=False)
