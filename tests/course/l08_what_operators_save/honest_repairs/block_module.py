"""Modules instead of functions."""

import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, weight):
        super().__init__()
        self._norm = nn.LayerNorm(weight.shape[0], eps=1e-5, elementwise_affine=False)
        self._silu = nn.SiLU()

    def forward(self, x, weight):
        return torch.matmul(self._silu(self._norm(x)), weight)


def block(x, weight):
    return Block(weight)(x, weight)
