"""Takes the square root, which is best for steps that keep nothing inside.

loses: train_step
says: How many blocks are recorded at a time?
"""


def train_step(model, x):
    segments = math.isqrt(len(model))  # noqa: F821  (imported in another cell of the notebook)
    loss = checkpoint_sequential(model, segments, x, use_reentrant=False).square().mean()  # noqa: F821
    loss.backward()
