"""A flag, and garbage collected where the error is gone."""

import gc

import torch


def pieces(model, load, count, batch):
    total = 0.0
    for start in range(0, count, batch):
        loss = model(load(start, min(start + batch, count))).square().sum()
        loss.backward()
        total += loss.item()
        del loss
    return total


def gradient_of_all(model, load, count):
    batch = count
    while True:
        failed = False
        try:
            return pieces(model, load, count, batch)
        except torch.cuda.OutOfMemoryError:
            failed = True
        if failed:
            model.zero_grad(set_to_none=True)
            gc.collect()
            torch.cuda.empty_cache()
            batch //= 2
