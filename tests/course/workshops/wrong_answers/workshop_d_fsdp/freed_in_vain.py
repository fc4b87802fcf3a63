"""Drops the names, while autograd keeps the weights.

loses: fsdp_step
says: 8 x gathered weight
"""

import torch


def fsdp_step(shards, x, all_gather, reduce_scatter):
    gradients = []
    for shard in shards:
        weight = all_gather(shard).requires_grad_()
        weight.register_post_accumulate_grad_hook(
            lambda each: gradients.append(reduce_scatter(each.grad))
        )
        x = torch.tanh(x @ weight)
        del weight
    x.square().mean().backward()
    return gradients[::-1]
