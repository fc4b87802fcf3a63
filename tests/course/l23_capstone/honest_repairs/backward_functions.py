"""A function of its own for a piece, and functional.linear with the head's weight."""

import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint


def piece(model, x, words, rows):
    for layer in model.layers:
        x = checkpoint(layer, x, use_reentrant=False)
    loss = F.cross_entropy(F.linear(x, model.head.weight), words)
    (loss * len(words) / rows).backward()


def backward(model, inputs, targets):
    rows = len(inputs)
    pieces = rows // 256
    for x, words in zip(inputs.tensor_split(pieces), targets.tensor_split(pieces)):
        piece(model, x, words, rows)
