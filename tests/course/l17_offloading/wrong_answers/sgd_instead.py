"""Fits, because plain SGD keeps nothing.

loses: train
says: the trained weights differ
"""


def train(model, load, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)  # noqa: F821  (imported in another cell of the notebook)
    for step in range(steps):
        loss = model(load(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
