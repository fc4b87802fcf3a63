"""The program as it was given.

loses: train
says: How many gradients must be allocated
"""


def train(model, load, steps):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # noqa: F821  (imported in another cell of the notebook)
    for step in range(steps):
        loss = model(load(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
