"""Scores of nine rows of ten.

says: It fits, but its scores have changed.
"""

import torch


def train(model, optimizer, load, held_out, steps):
    scores = []
    for step in range(steps):
        loss = model(load(step)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            scores.append(model(held_out[: len(held_out) * 9 // 10]).square().mean())
    return torch.stack(scores)
