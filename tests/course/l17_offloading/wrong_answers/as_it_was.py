"""The program as it was given, with the fused implementation.

loses: train
says: Which of their copies does the GPU not compute with?
"""


def train(model, load, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)  # noqa: F821  (imported in another cell of the notebook)
    for step in range(steps):
        loss = model(load(step)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
