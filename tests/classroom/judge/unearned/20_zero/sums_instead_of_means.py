"""Gradients are added up over the ranks, and not divided.

says: or a gradient divide factor changes what
"""


def shard(model, fully_shard):
    for layer in model.layers:
        fully_shard(layer)
    fully_shard(model)
    for m in [*model.layers, model]:
        m.set_gradient_divide_factor(1.0)
