"""Computes all of the chain anew.

loses: backward_flops
leaves: 1.5
says: You computed the last layer anew.
"""


def backward_flops(widths, rows, checkpointed):
    layers = layers_of(widths)  # noqa: F821  (defined in another cell of the notebook)
    products = [2 * rows * inputs * outputs for inputs, outputs in layers]
    return (3 if checkpointed else 2) * sum(products) - products[0]
