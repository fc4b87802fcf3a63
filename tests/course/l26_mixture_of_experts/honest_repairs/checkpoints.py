"""Each expert's own tokens, computed again in the backward pass."""

import torch
from torch.nn.functional import gelu
from torch.utils.checkpoint import checkpoint


def expert_of(x, share, up, down):
    return gelu(x @ up.T) @ down.T * share


def moe(x, scores, up, down, top_k):
    least = scores.topk(top_k).values[:, -1:]
    y = x.new_zeros(x.shape)
    for number, matrices in enumerate(zip(up, down)):
        (rows,) = torch.where(scores[:, number] >= least[:, 0])
        share = scores[rows, number].unsqueeze(1)
        part = checkpoint(expert_of, x[rows], share, *matrices, use_reentrant=False)
        y = y.index_add(0, rows, part)
    return y
