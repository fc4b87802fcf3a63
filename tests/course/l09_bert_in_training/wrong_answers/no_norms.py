"""Fits, because it reports nothing.

loses: train
says: It has to return two results
"""


def train(model, load, steps):
    model.use_attention("sdpa")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # noqa: F821  (imported in another cell of the notebook)
    losses = []
    for step in range(steps):
        x, target = load(step)
        loss = (model(x).last - target).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return losses
