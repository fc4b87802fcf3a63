"""Computes only two of sixteen blocks again, products and all: few FLOPs, and just enough.

says: It runs to the end, but its peak is
"""

import torch
from torch.utils.checkpoint import checkpoint


def train_step(model, x):
    for number, block in enumerate(model):

        def whole(x, block=block):
            normed = block.scale * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))
            hidden = torch.nn.functional.silu(block.gate(normed)) * block.up(normed)
            return x + block.down(hidden)

        x = whole(x) if number % 12 else checkpoint(whole, x, use_reentrant=False)
    x.square().mean().backward()
