"""Calls the layers one by one instead of using a hook, and detaches what it keeps."""

import torch


@torch.no_grad()
def check(model, inputs, targets):
    hidden = model[0](inputs)
    return (model[2](model[1](hidden)) - targets).pow(2).mean(), hidden.max()


def train(model, load, batches):
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    checks, largest = [], []
    for index in range(batches):
        inputs, targets = load(index)
        hidden = model[0](inputs)
        largest.append(hidden.detach().max().clone())
        loss = (model[2](model[1](hidden)) - targets).pow(2).mean()
        del hidden
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad()
        error, most = check(model, inputs, targets)
        checks.append(error)
        largest.append(most)
    return torch.stack(checks).mean(), largest
