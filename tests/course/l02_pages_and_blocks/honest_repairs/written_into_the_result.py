"""Norms are written into the result, with out=."""

import torch


def row_norms(load, count):
    result = None
    for index in range(count):
        batch = load(index)
        if result is None:
            result = torch.empty(count, len(batch), device=batch.device)
        torch.norm(batch, p=2, dim=1, out=result[index])
        del batch
    return result.flatten()
