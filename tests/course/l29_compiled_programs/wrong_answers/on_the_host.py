"""Sends what is saved to the host.

loses: train_step
says: to the host.
"""

import torch


def train_step(model, x):
    with torch.autograd.graph.save_on_cpu():
        for block in model:
            wide = x.float()
            normed = (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)
            normed = block.scale * normed
            hidden = torch.nn.functional.silu(block.gate(normed)) * block.up(normed)
            x = x + block.down(hidden)
        x.square().mean().backward()
