"""Scores wait in two bytes on the host.

says: its scores are others
"""

import torch


def evaluate(model, load, batches):
    model.eval()
    total, scores = 0, []
    with torch.no_grad():
        for step in range(batches):
            inputs, targets = load(step)
            outputs = model(inputs)
            total += (outputs - targets).square().mean()
            scores.append(outputs.half().cpu())
    return total / batches, torch.cat(scores).float()
