"""The body without a graph: nothing below the head needs one."""

import torch


def train_head(model, inputs, targets):
    head = model[-1]
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    with torch.no_grad():
        hidden = model[:-1](inputs)
    for _ in range(3):
        loss = (head(hidden) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return head.weight.detach()
