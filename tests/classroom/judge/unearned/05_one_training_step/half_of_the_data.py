"""Scores every second row: a sample of rows that are all alike.

says: of the work: 
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
            scores.append(model(held_out[::2]).square().mean())
    return torch.stack(scores)
