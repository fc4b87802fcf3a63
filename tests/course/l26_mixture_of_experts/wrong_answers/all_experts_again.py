"""Lets every expert compute for every token, and again in the backward pass.

loses: moe
says: not dispatched to them?
"""

import torch
from torch.utils.checkpoint import checkpoint


def _expert(x, weights, up, down):
    return torch.nn.functional.gelu(x @ up.T) @ down.T * weights[:, None]


def moe(x, scores, up, down, top_k):
    chosen = scores.topk(top_k).indices
    y = torch.zeros_like(x)
    for expert in range(len(up)):
        weights = torch.where((chosen == expert).any(1), scores[:, expert], 0.0)
        y = y + checkpoint(_expert, x, weights, up[expert], down[expert], use_reentrant=False)
    return y
