"""The order is generated, one pair after the other."""


def one_forward_one_backward(rank, ranks, micro_batches):
    ahead = min(ranks - 1 - rank, micro_batches)
    yield from (("forward", n) for n in range(ahead))
    for n in range(micro_batches - ahead):
        yield "forward", ahead + n
        yield "backward", n
    yield from (("backward", n) for n in range(micro_batches - ahead, micro_batches))
