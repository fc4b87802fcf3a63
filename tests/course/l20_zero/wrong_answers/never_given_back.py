"""Layer by layer, but what is gathered stays until backward.

loses: shard
says: How many layers are gathered at the same time
"""


def shard(model, fully_shard):
    for layer in model.layers:
        fully_shard(layer, reshard_after_forward=False)
    fully_shard(model)
