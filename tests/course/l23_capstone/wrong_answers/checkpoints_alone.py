"""Checkpoints each layer, and leaves all logits there at once.

loses: backward
says: Which term is largest now
"""

from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def backward(model, inputs, targets):
    x = inputs
    for layer in model.layers:
        x = checkpoint(layer, x, use_reentrant=False)
    functional.cross_entropy(model.head(x), targets).backward()
