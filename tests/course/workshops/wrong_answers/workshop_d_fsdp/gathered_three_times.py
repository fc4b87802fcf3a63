"""Gathers a weight for each product.

loses: fsdp_step
says: Which weight is gathered more than twice?
"""

import torch


def fsdp_step(shards, x, all_gather, reduce_scatter):
    outputs = [x]
    for shard in shards:
        weight = all_gather(shard)
        outputs.append(torch.tanh(outputs[-1] @ weight))
        del weight
    y = outputs.pop()
    gradient = 2 * y / y.numel()
    gradients = []
    for shard in reversed(shards):
        x = outputs.pop()
        gradient = gradient * (1 - y * y)
        weight = all_gather(shard)
        del weight
        weight = all_gather(shard)
        of_x = gradient @ weight.T
        del weight
        gradients.append(reduce_scatter(x.T @ gradient))
        y, gradient = x, of_x
    return gradients[::-1]
