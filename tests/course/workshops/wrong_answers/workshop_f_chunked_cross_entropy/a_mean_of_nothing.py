"""Takes the mean of the pieces' means, and one piece has no token that counts.

loses: mean_loss
says: Its mean is 0 / 0.
"""

import torch
from torch.nn.functional import cross_entropy


def mean_loss(x, weight, targets):
    means = [
        cross_entropy(x[start : start + 64] @ weight.T, targets[start : start + 64])
        for start in range(0, len(x), 64)
    ]
    return torch.stack(means).mean()
