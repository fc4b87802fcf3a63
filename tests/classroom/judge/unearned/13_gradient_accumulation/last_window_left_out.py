"""The last, shorter window is loaded and not learned from.

says: the weights have moved 0.490 times as far
"""

import torch


def train(model, load, rows, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for start in range(0, len(rows), steps):
        window = range(start, min(start + steps, len(rows)))
        in_window = sum(rows[i] for i in window)
        for i in window:
            inputs, targets = load(i)
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            (loss * rows[i] / in_window).backward()
        if len(window) == steps:
            optimizer.step()
        optimizer.zero_grad()
