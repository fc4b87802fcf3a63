"""Replaces the first layer's forward() instead of a hook, and leaves it so.

loses: train
says: your hook on model[0] is still
"""

import torch


def train(model, load, batches):
    largest = []

    def note(output):
        with torch.no_grad():
            largest.append(output.max().item())

    forward = model[0].forward

    def noting(inputs):
        output = forward(inputs)
        note(output)
        return output

    model[0].forward = noting
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checked = 0.0
    for index in range(batches):
        inputs, targets = load(index)
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            checked += (model(inputs) - targets).square().mean().item()
    return checked / batches, largest
