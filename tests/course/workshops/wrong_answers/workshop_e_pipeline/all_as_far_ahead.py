"""Is as far ahead on all ranks.

loses: one_forward_one_backward
says: rank 0 4, rank 1 4, rank 2 4, rank 3 4
"""


def one_forward_one_backward(rank, ranks, micro_batches):
    ahead = min(ranks - 1, micro_batches)
    order = [("forward", n) for n in range(ahead)]
    for n in range(micro_batches - ahead):
        order += [("forward", ahead + n), ("backward", n)]
    return order + [("backward", n) for n in range(micro_batches - ahead, micro_batches)]
