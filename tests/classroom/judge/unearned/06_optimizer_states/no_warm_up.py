"""Loads the batches of the warm-up, and does not train on them.

says: the trained weights differ
"""

import torch


def train(model, load, steps):
    for step in range(steps):
        model(load(step)).square().mean().backward()
        model.zero_grad()
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    for step in range(steps, 2 * steps):
        model(load(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
