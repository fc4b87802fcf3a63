"""A list at module level carries shards and gradients from rank to rank; nothing is sent.

says: Rank 0 sent 0 bytes by all-gather of the 512.00 KiB that its shards have
"""

import torch

RANKS = []


def fsdp_step(shards, x, all_gather, reduce_scatter):
    RANKS.append((shards, x))
    return [torch.zeros_like(shard) for shard in shards]
