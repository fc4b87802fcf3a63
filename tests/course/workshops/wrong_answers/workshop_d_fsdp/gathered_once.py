"""Keeps what forward has gathered.

loses: fsdp_step
says: 8 x gathered weight
"""

import torch


def fsdp_step(shards, x, all_gather, reduce_scatter):
    outputs, weights = [x], []
    for shard in shards:
        weights.append(all_gather(shard))
        outputs.append(torch.tanh(outputs[-1] @ weights[-1]))
    y = outputs.pop()
    gradient = 2 * y / y.numel()
    gradients = []
    for _ in shards:
        x = outputs.pop()
        gradient = gradient * (1 - y * y)
        weight = weights.pop()
        of_x = gradient @ weight.T
        del weight
        gradients.append(reduce_scatter(x.T @ gradient))
        y, gradient = x, of_x
    return gradients[::-1]
