"""Sets every gradient to the largest norm instead of clipping those that are longer.

says: and only where they are larger than 2e-6
"""

import torch


def train(model, load, steps):
    parameters = list(model.parameters())
    for step in range(steps):
        inputs, targets = load(step)
        with torch.autocast("cuda", dtype=torch.float16):
            loss = 0.001 * torch.nn.functional.mse_loss(model(inputs), targets)
        (65536 * loss).backward()
        norm = sum(each.grad.square().sum() for each in parameters).sqrt()
        for each in parameters:
            each.data -= 2e5 * 2e-6 * each.grad / norm
            each.grad = None
