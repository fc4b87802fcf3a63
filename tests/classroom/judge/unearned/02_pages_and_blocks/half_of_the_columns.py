"""Estimates the length of a row from half of its columns.

says: It fits, but its results have changed.
"""

import torch


def row_norms(load, count):
    norms = []
    for index in range(count):
        batch = load(index).square_()
        norms.append((batch[:, ::2].sum(dim=1) * 2).sqrt())
        del batch
    return torch.cat(norms)
