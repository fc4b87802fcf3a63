"""Sums of squares are accumulated, and gradients are divided once."""

import torch


def train(model, load, rows, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    numbers = 0
    for i in range(len(rows)):
        inputs, targets = load(i)
        difference = model(inputs) - targets
        numbers += difference.numel()
        difference.square().sum().backward()
        del difference
        if (i + 1) % steps == 0 or i + 1 == len(rows):
            for parameter in model.parameters():
                parameter.grad /= numbers
            optimizer.step()
            optimizer.zero_grad()
            numbers = 0
