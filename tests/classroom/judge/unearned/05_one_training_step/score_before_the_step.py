"""A score from before the step, which the step hardly changes.

says: It fits, but its scores have changed.
"""

import torch


def train(model, optimizer, load, held_out, steps):
    scores = []
    for step in range(steps):
        with torch.no_grad():
            scores.append(model(held_out).square().mean())
        loss = model(load(step)).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return torch.stack(scores)
