"""Squares and sums in two bytes a number, which are off by 0.1 %.

says: it runs out of memory
"""

import torch


def row_norms(load, count):
    norms = []
    for index in range(count):
        batch = load(index)
        batch.square_()
        norms.append(batch.half().sum(dim=1).float().sqrt())
        del batch
    return torch.cat(norms)
