"""Takes its part of its own gradient, and sends nothing.

loses: fsdp_step
says: sent 0 bytes by reduce-scatter of the 2.00 MiB that its gradients have
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
        of_x = gradient @ weight.T
        del weight
        gradients.append((x.T @ gradient)[: len(shard)].clone())
        y, gradient = x, of_x
    return gradients[::-1]
