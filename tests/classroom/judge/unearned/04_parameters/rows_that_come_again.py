"""Computes five rows and repeats them.

says: the trained weights differ
"""

import torch


def train_head(model, inputs, targets):
    body, head = model[:-1], model[-1]
    with torch.no_grad():
        x = body(inputs[:5])
        x = torch.cat([x, x[:3]])
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(3):
        loss = (head(x) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return head.weight.detach()
