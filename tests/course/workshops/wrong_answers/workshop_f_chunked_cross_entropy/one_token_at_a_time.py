"""Fewest bytes, and too many steps.

loses: mean_loss
says: operators, target 80
"""

from torch.nn.functional import cross_entropy


def mean_loss(x, weight, targets):
    total = x.new_zeros(())
    for row, target in zip(x, targets, strict=True):
        total += cross_entropy(weight @ row, target, reduction="sum")
    return total / (targets != -100).sum()
