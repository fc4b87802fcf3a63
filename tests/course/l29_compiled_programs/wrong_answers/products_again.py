"""Checkpoints whole blocks.

loses: train_step
says: it recomputes products
"""


def train_step(model, x):
    from torch.utils.checkpoint import checkpoint

    for block in model:
        x = checkpoint(block, x, use_reentrant=False)
    x.square().mean().backward()
