"""Shards the layers, and leaves the head to every rank.

loses: shard
says: 1 parameters are not sharded over all 8 ranks, head.weight among them.
"""


def shard(model, fully_shard):
    for layer in model.layers:
        fully_shard(layer)
