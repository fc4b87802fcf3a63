"""Scores written into a tensor on the host that is made first."""

import math

import torch


def evaluate(model, load, batches):
    model.eval()
    total, kept = torch.zeros((), device="cuda"), None
    for step in range(batches):
        with torch.no_grad():
            inputs, targets = load(step)
            outputs = model(inputs)
            total += (outputs - targets).pow(2).mean()
        if kept is None:
            kept = torch.empty(batches * len(outputs), *outputs.shape[1:])
        kept[step * len(outputs) : (step + 1) * len(outputs)] = outputs.cpu()
    assert math.isfinite(float(total))
    return float(total) / batches, kept
