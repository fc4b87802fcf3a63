"""The program as it was given.

loses: moe
says: how many of them does your program allocate
"""

import torch


def moe(x, scores, up, down, top_k):
    chosen = scores.topk(top_k).indices
    y = torch.zeros_like(x)
    for expert in range(len(up)):
        weights = torch.where((chosen == expert).any(1), scores[:, expert], 0.0)
        hidden = torch.nn.functional.gelu(x @ up[expert].T)
        y = y + hidden @ down[expert].T * weights[:, None]
    return y
