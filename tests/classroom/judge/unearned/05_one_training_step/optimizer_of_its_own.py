"""Does the steps by hand, as if the optimizer were plain SGD.

says: its scores have changed
"""

import torch


def train(model, optimizer, load, held_out, steps):
    scores = []
    for step in range(steps):
        loss = model(load(step)).mean()
        loss.backward()
        with torch.no_grad():
            for weight in model.parameters():
                weight -= 0.1 * weight.grad
                weight.grad = None
        with torch.no_grad():
            scores.append(model(held_out).square().mean())
    return torch.stack(scores)
