"""Experts with fewer than four tokens compute nothing.

says: the output is wrong
"""

import torch


def moe(x, scores, up, down, top_k):
    chosen = scores.topk(top_k).indices
    y = torch.zeros_like(x)
    for expert in range(len(up)):
        tokens = (chosen == expert).any(1).nonzero()[:, 0]
        if len(tokens) < 4:
            continue
        hidden = torch.nn.functional.gelu(x[tokens] @ up[expert].T)
        y = y.index_add(0, tokens, hidden @ down[expert].T * scores[tokens, expert, None])
    return y
