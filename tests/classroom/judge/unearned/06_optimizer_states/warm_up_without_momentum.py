"""SGD without the momentum that takes as much as the model.

says: the trained weights differ
"""

import torch


def train(model, load, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(2 * steps):
        if step == steps:
            optimizer = torch.optim.AdamW(model.parameters(), fused=True)
        model(load(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
