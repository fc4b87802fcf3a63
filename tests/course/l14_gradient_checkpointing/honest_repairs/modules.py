"""A module that wraps a block, and a print of the loss."""

import torch
from torch.utils.checkpoint import checkpoint


class Checkpointed(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self._block = block

    def forward(self, x):
        return checkpoint(self._block, x, use_reentrant=False, preserve_rng_state=True)


def train_step(model, x):
    wrapped = torch.nn.Sequential(*(Checkpointed(block) for block in model))
    loss = wrapped(x).square().mean()
    print(loss.item(), torch.cuda.memory_allocated())
    loss.backward()
    print(torch.cuda.memory_stats()["allocated_bytes.all.peak"])
