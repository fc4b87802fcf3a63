"""Fits by checkpointing, which the question rules out.

loses: train_step
says: it recomputes layers.
"""


def train_step(model, x):
    checkpoint_sequential = torch.utils.checkpoint.checkpoint_sequential  # noqa: F821  (imported in another cell of the notebook)
    y = checkpoint_sequential(model, 5, x, use_reentrant=False)
    y.square().mean().backward()
