"""Begins with more micro-batches than there are.

loses: one_forward_one_backward
says: The order of rank 0 has ('forward', 2), which is not in the schedule
"""


def one_forward_one_backward(rank, ranks, micro_batches):
    ahead = ranks - rank
    order = [("forward", n) for n in range(ahead)]
    for n in range(micro_batches - ahead):
        order += [("backward", n), ("forward", ahead + n)]
    return order + [("backward", n) for n in range(max(micro_batches - ahead, 0), micro_batches)]
