"""Divides by all tokens, also those that count for nothing.

loses: mean_loss
says: ignored tokens do not count
"""

from torch.nn.functional import cross_entropy


def mean_loss(x, weight, targets):
    total = x.new_zeros(())
    for start in range(0, len(x), 64):
        logits = x[start : start + 64] @ weight.T
        total += cross_entropy(logits, targets[start : start + 64], reduction="sum")
        del logits
    return total / len(x)
