"""Fits, because it takes one sample at a time.

loses: gradient_of_all
says: samples would fit
"""


def gradient_of_all(model, load, count):
    total = 0.0
    for start in range(count):
        loss = model(load(start, start + 1)).square().sum()
        loss.backward()
        total += loss.detach()
    return total
