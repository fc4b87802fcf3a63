"""Is GPipe.

loses: one_forward_one_backward
says: micro-batches in flight at most: rank 0 8, rank 1 8, rank 2 8, rank 3 8.
"""


def one_forward_one_backward(rank, ranks, micro_batches):
    numbers = range(micro_batches)
    return [("forward", n) for n in numbers] + [("backward", n) for n in numbers]
