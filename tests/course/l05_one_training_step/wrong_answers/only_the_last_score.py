"""Fits, because it computes one score for all steps.

loses: train
says: What is left out?
"""


def train(model, optimizer, load, held_out, steps):
    for step in range(steps):
        loss = model(load(step)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    with torch.no_grad():  # noqa: F821  (imported in another cell of the notebook)
        score = model(held_out).square().mean()
    return torch.stack([score] * steps)  # noqa: F821
