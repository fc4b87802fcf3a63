"""The layers compute something else, of the same FLOPs.

says: A hook, or a forward() of your own, on layers.0
"""

import torch


def shard(model, fully_shard):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    for layer in model.layers:
        layer.forward = lambda x, layer=layer: torch.nn.functional.linear(x, layer.weight) * 0
