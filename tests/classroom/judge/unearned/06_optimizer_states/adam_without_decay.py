"""Adam instead of AdamW: without weight decay no single weight is far off.

says: is off by 2.0e-05 of its size
"""

import torch


def train(model, load, steps):
    def learn(optimizer, step):
        model(load(step)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    warm_up = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        learn(warm_up, step)
    del warm_up
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    for step in range(steps, 2 * steps):
        learn(optimizer, step)
