"""Leaves no hook, but a module around the first layer.

says: the model has other layers when the function returns
"""

import torch


class Noting(torch.nn.Module):
    def __init__(self, inner, largest):
        super().__init__()
        self.inner = inner
        self.largest = largest

    def forward(self, x):
        y = self.inner(x)
        self.largest.append(y.detach().max())
        return y


def train(model, load, batches):
    largest = []
    model[0] = Noting(model[0], largest)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checked = 0
    for index in range(batches):
        inputs, targets = load(index)
        loss = (model(inputs) - targets).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        with torch.no_grad():
            checked += (model(inputs) - targets).square().mean()
    return checked / batches, largest
