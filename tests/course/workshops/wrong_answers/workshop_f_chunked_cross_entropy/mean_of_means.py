"""Takes the mean of the pieces' means.

loses: mean_loss
says: does every chunk count equally many tokens?
"""

import torch
from torch.nn.functional import cross_entropy


def mean_loss(x, weight, targets):
    means = [
        cross_entropy(x[start : start + 64] @ weight.T, targets[start : start + 64])
        for start in range(0, len(x), 64)
    ]
    return torch.stack(means).nanmean()
