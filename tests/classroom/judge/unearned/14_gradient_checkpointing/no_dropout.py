"""Without dropout no random numbers have to be the same.

says: the gradients are wrong
"""

import torch
from torch.utils.checkpoint import checkpoint


def train_step(model, x):
    model.eval()
    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    x.square().mean().backward()
