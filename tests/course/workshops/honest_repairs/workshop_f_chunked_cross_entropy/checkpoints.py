"""A checkpoint for every piece."""

import torch
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import checkpoint


def chunked_loss(x, weight, targets):
    def part(rows, words):
        return cross_entropy(rows @ weight.T, words, reduction="sum")

    parts = zip(x.split(32), targets.split(32), strict=True)
    total = sum(checkpoint(part, rows, words, use_reentrant=False) for rows, words in parts)
    return total / (targets != -100).sum()
