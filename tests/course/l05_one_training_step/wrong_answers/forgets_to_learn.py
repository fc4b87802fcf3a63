"""Fits, because it does not train.

loses: train
says: What is left out?
"""


def train(model, optimizer, load, held_out, steps):
    with torch.no_grad():  # noqa: F821  (imported in another cell of the notebook)
        scores = [model(held_out).square().mean() for _ in range(steps)]
    return torch.stack(scores)  # noqa: F821
