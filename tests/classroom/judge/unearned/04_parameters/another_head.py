"""Trains a copy, and leaves the model as it is.

says: but the head of the model has another
"""

import copy

import torch


def train_head(model, inputs, targets):
    model[:-1].requires_grad_(False)
    head = copy.deepcopy(model[-1])
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(3):
        loss = (head(model[:-1](inputs)) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return head.weight.detach()
