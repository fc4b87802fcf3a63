"""Sends each token to its best expert alone.

loses: moe
says: What is left out?
"""

import torch


def moe(x, scores, up, down, top_k):
    best = scores.argmax(1)
    y = torch.zeros_like(x)
    for expert in range(len(up)):
        tokens = (best == expert).nonzero()[:, 0]
        hidden = torch.nn.functional.gelu(x[tokens] @ up[expert].T)
        y = y.index_add(0, tokens, hidden @ down[expert].T * scores[tokens, expert, None])
    return y / top_k
