"""Detaches the router's scores.

loses: moe
says: It fits, but scores gets no gradient.
"""

import torch


def moe(x, scores, up, down, top_k):
    weights, chosen = scores.detach().topk(top_k)
    y = torch.zeros_like(x)
    for expert in range(len(up)):
        tokens, place = (chosen == expert).nonzero().T
        hidden = torch.nn.functional.gelu(x[tokens] @ up[expert].T)
        y = y.index_add(0, tokens, hidden @ down[expert].T * weights[tokens, place, None])
    return y
