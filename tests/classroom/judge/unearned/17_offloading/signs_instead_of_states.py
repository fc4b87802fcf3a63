"""No states at all: AdamW's first step is the sign of the gradient.

says: the trained weights differ
"""

import torch


def train(model, load, steps):
    for step in range(steps):
        model(load(step)).square().mean().backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(1 - 0.01 * 0.01)
                parameter -= 0.01 * parameter.grad.sign()
                parameter.grad = None
