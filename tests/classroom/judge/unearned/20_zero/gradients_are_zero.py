"""A hook of each parameter drops its gradient.

says: A hook, or a forward() of your own, on layers.0.weight
"""


def shard(model, fully_shard):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    for p in model.parameters():
        p.register_hook(lambda g: g * 0)
