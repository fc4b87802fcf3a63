"""Tokens beyond one and a half times an expert's equal share are dropped.

says: of the work
"""

import torch


def moe(x, scores, up, down, top_k):
    chosen = scores.topk(top_k).indices
    most = int(1.5 * len(x) * top_k / len(up))
    y = torch.zeros_like(x)
    for expert in range(len(up)):
        tokens = (chosen == expert).any(1).nonzero()[:most, 0]
        hidden = torch.nn.functional.gelu(x[tokens] @ up[expert].T)
        y = y.index_add(0, tokens, hidden @ down[expert].T * scores[tokens, expert, None])
    return y
