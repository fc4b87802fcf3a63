"""Begins backward with the weight that forward has ended with."""

import torch


def fsdp_step(shards, x, all_gather, reduce_scatter):
    outputs = [x]
    weight = None
    for shard in shards:
        del weight
        weight = all_gather(shard)
        outputs.append(torch.tanh(outputs[-1] @ weight))
    y = outputs.pop()
    gradient = 2 * y / y.numel()
    gradients = []
    for shard in reversed(shards):
        x = outputs.pop()
        gradient = gradient * (1 - y * y)
        if weight is None:
            weight = all_gather(shard)
        of_x = gradient @ weight.T
        weight = None
        gradients.append(reduce_scatter(x.T @ gradient))
        y, gradient = x, of_x
    return gradients[::-1]
