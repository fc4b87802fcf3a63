"""Fits, because it leaves the warm-up out.

loses: train
says: What is left out?
"""


def train(model, load, steps):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # noqa: F821  (imported in another cell of the notebook)
    for step in range(steps, 2 * steps):
        loss = model(load(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
