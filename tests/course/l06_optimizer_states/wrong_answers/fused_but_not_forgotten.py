"""Takes the fused way, and keeps the unused momentum.

loses: train
says: left from work that is done?
"""


def train(model, load, steps):
    warm_up = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)  # noqa: F821  (imported in another cell of the notebook)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)  # noqa: F821
    for step in range(2 * steps):
        chosen = warm_up if step < steps else optimizer
        loss = model(load(step)).square().mean()
        loss.backward()
        chosen.step()
        chosen.zero_grad()
