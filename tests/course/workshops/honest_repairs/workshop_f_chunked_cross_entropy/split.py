"""Pieces by split, half as long as they could be."""

import torch
import torch.nn.functional as F


def mean_loss(x, weight, targets):
    def part(rows, words):
        return F.cross_entropy(F.linear(rows, weight), words, reduction="sum", ignore_index=-100)

    total = sum(part(*pair) for pair in zip(x.split(32), targets.split(32), strict=True))
    return total / torch.count_nonzero(targets != -100)
