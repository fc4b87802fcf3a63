"""Cuts into pieces of 256 rows, and keeps what all layers keep of each.

loses: backward
says: Its pieces have had [256] rows.
"""

from torch.nn import functional


def backward(model, inputs, targets):
    pieces = len(inputs) // 256
    for x, words in zip(inputs.tensor_split(pieces), targets.tensor_split(pieces), strict=True):
        loss = functional.cross_entropy(model.head(model.layers(x)), words)
        (loss * len(x) / len(inputs)).backward()
