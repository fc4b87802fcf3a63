"""Two functions; AdamW goes through the parameters one by one."""

import gc

import torch


def warm_up(model, load, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False)
    for step in range(steps):
        model(load(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def train(model, load, steps):
    warm_up(model, load, steps)
    gc.collect()
    optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
    for step in range(steps, 2 * steps):
        model(load(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
