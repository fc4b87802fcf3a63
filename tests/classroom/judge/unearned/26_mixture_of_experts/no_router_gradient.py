"""The scores weight the outputs and learn nothing.

says: the gradient of scores is wrong
"""

import torch


def moe(x, scores, up, down, top_k):
    chosen = scores.topk(top_k).indices
    y = torch.zeros_like(x)
    for expert in range(len(up)):
        tokens = (chosen == expert).any(1).nonzero()[:, 0]
        hidden = torch.nn.functional.gelu(x[tokens] @ up[expert].T)
        y = y.index_add(0, tokens, hidden @ down[expert].T * scores[tokens, expert, None].detach())
    return y + 0 * scores.sum()
