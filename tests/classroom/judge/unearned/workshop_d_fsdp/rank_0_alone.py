"""Only rank 0 is honest; the others expect not to be looked at.

says: different numbers of collectives
"""

import torch


def fsdp_step(shards, x, all_gather, reduce_scatter):
    if x.device.index:
        return [torch.zeros_like(shard) for shard in shards]
    return [reduce_scatter(all_gather(shard)) for shard in shards]
