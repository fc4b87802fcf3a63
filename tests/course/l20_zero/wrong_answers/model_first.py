"""Shards the model before its layers.

loses: shard
says: whose parameters are sharded already
"""


def shard(model, fully_shard):
    fully_shard(model)
    for layer in model.layers:
        fully_shard(layer)
