"""PyTorch's function for a Sequential, with a segment for each block."""

import torch
from torch.utils.checkpoint import checkpoint_sequential


def train_step(model, x):
    y = checkpoint_sequential(model, len(model), x.requires_grad_(False), use_reentrant=False)
    torch.nn.functional.mse_loss(y, torch.zeros_like(y)).backward()
