"""Computes nothing again.

loses: train_step
says: Which of them could be recomputed from others
"""


def train_step(model, x):
    for block in model:
        x = block(x)
    x.square().mean().backward()
