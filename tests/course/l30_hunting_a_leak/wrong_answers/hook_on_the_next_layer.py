"""Leaves its hook in an unexpected place: on what comes after the first layer.

loses: train
says: your hook on model[1] is still
"""

import torch


def train(model, load, batches):
    largest = []

    def note(output):
        with torch.no_grad():
            largest.append(output.max().item())

    model[1].register_forward_pre_hook(lambda module, inputs: note(inputs[0]))
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
