"""Believes that autograd records from the first layer on.

loses: kept_bytes
says: You began at the first layer.
"""


def kept_bytes(layers, rows, width, rank):
    wide, thin = block_bytes(4 * rows * width), block_bytes(4 * rows * rank)  # noqa: F821  (defined in another cell)
    total = len(layers) * wide
    for number, layer in enumerate(layers):
        if layer != "frozen" and number > 0:
            total += wide
        if layer == "adapted":
            total += thin
    return total
