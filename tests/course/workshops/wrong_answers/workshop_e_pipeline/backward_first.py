"""Waits for a gradient that no rank sends.

loses: one_forward_one_backward
says: ranks wait for what does not come: rank 0
"""


def one_forward_one_backward(rank, ranks, micro_batches):
    order = []
    for n in range(micro_batches):
        order += [("backward", n), ("forward", n)]
    return order
