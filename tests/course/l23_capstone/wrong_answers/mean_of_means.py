"""Gives each piece the same weight, however many rows it has.

loses: backward
says: Does every row count equally
"""

from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def backward(model, inputs, targets):
    pieces = len(inputs) // 256
    for x, words in zip(inputs.tensor_split(pieces), targets.tensor_split(pieces), strict=True):
        for layer in model.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        (functional.cross_entropy(model.head(x), words) / pieces).backward()
        del x
