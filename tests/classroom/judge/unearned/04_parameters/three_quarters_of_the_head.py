"""A quarter of the numbers may differ: those are not trained.

says: the trained weights differ
"""

import torch


def train_head(model, inputs, targets):
    model[:-1].requires_grad_(False)
    head = model[-1]
    before = head.weight.detach().clone()
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(3):
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    rows = len(before) // 4
    with torch.no_grad():
        head.weight[:rows] = before[:rows]
    return head.weight.detach()
