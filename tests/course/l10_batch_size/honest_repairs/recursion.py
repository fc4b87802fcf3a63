"""The error is asked for by RuntimeError's text, and the recursion is outside of the except block."""

import torch


def attempt(model, load, start, stop):
    try:
        loss = model(load(start, stop)).square().sum()
        loss.backward()
        return loss.detach()
    except RuntimeError as error:
        if "out of memory" not in str(error):
            raise
    return None


def gradient_of_all(model, load, count):
    size = count
    while attempt(model, load, 0, size) is None:
        model.zero_grad()
        size //= 2
    model.zero_grad()
    total = torch.zeros((), device="cuda")
    for start in range(0, count, size):
        total += attempt(model, load, start, min(start + size, count))
    return total
