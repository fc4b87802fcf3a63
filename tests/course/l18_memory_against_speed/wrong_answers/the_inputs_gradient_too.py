"""Takes backward for exactly twice forward.

loses: backward_flops
says: You counted the gradient of the model's input.
"""


def backward_flops(widths, rows, checkpointed):
    layers = layers_of(widths)  # noqa: F821  (defined in another cell of the notebook)
    products = [2 * rows * inputs * outputs for inputs, outputs in layers]
    return 2 * sum(products) + (sum(products[:-1]) if checkpointed else 0)
