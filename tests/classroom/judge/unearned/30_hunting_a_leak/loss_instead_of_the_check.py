"""The check after the step is taken from before it.

says: the largest outputs are wrong
"""

import torch


def train(model, load, batches):
    largest = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checked = 0
    for index in range(batches):
        inputs, targets = load(index)
        first = model[0](inputs)
        largest += [first.detach().max()] * 2
        loss = (model[1:](first) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        checked += loss.detach()
        with torch.no_grad():
            model(inputs)  # looks busy
        del first, loss
    return checked / batches, largest
