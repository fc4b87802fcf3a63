"""Saves the little time that the generators' states cost.

loses: train_step
says: does dropout draw when a block runs again?
"""


def train_step(model, x):
    for block in model:
        x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)  # noqa: F821  (imported in another cell of the notebook)
    x.square().mean().backward()
