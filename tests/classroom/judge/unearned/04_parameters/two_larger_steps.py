"""Adam's steps are as long as its rate: two of 0.015 are about three of 0.01.

says: the trained weights differ
"""

import torch


def train_head(model, inputs, targets):
    model[:-1].requires_grad_(False)
    head = model[-1]
    optimizer = torch.optim.Adam(head.parameters(), lr=0.015)
    for _ in range(2):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return head.weight.detach()
