"""Lets the output go, but keeps the graphs of the scores.

loses: train
says: Whose graph does a score hold?
"""


def train(model, optimizer, load, held_out, steps):
    scores = []
    for step in range(steps):
        loss = model(load(step)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scores.append(model(held_out).square().mean())
    return torch.stack(scores)  # noqa: F821  (imported in another cell of the notebook)
