"""itertools, a generator, and a context manager of its own."""

import contextlib
import itertools

import torch


@contextlib.contextmanager
def one_step(optimizer):
    yield
    optimizer.step()
    optimizer.zero_grad()


def windows(count, size):
    indices = iter(range(count))
    while window := list(itertools.islice(indices, size)):
        yield window


def train(model, load, rows, steps):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for window in windows(len(rows), steps):
        weights = {i: rows[i] / sum(rows[j] for j in window) for i in window}
        with one_step(optimizer):
            for i in window:
                inputs, targets = load(i)
                (weights[i] * (model(inputs) - targets).square().mean()).backward()
