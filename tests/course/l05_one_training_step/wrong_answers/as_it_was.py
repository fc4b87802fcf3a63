"""The loop as it was given.

loses: train
says: Which tensor has a name at the peak
"""


def train(model, optimizer, load, held_out, steps):
    scores = []
    for step in range(steps):
        y = model(load(step))
        loss = y.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scores.append(model(held_out).square().mean())
    return torch.stack(scores)  # noqa: F821  (imported in another cell of the notebook)
