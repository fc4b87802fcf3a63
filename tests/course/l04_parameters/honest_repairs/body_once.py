"""The frozen body gives the same three times, so it runs once."""

import torch


def train_head(model, inputs, targets):
    *body, head = model
    with torch.no_grad():
        x = inputs
        for layer in body:
            x = layer(x)
    optimizer = torch.optim.Adam(head.parameters(), lr=0.01)
    for _ in range(3):
        torch.nn.functional.mse_loss(head(x), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
    return head.weight.detach()
