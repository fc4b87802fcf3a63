"""A hook makes every output zero.

says: A hook, or a forward() of your own, on layers.0
"""


def shard(model, fully_shard):
    for layer in model.layers:
        fully_shard(layer)
        layer.register_forward_hook(lambda module, inputs, output: output * 0)
    fully_shard(model)
