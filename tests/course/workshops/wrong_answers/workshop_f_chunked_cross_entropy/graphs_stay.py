"""Goes through the pieces, but autograd keeps the logits of all of them.

loses: chunked_loss
says: result of log_softmax, [64, 8192] float32
"""

from torch.nn.functional import cross_entropy


def chunked_loss(x, weight, targets):
    total = x.new_zeros(())
    for start in range(0, len(x), 64):
        logits = x[start : start + 64] @ weight.T
        total = total + cross_entropy(logits, targets[start : start + 64], reduction="sum")
        del logits
    return total / (targets != -100).sum()
