"""AdamW from the first step on.

says: the trained weights differ
"""

import torch


def train(model, load, steps):
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(2 * steps):
        model(load(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
