"""Counts one row of each convolution's kernel.

loses: parameter_count
leaves: 2
says: A kernel of a convolution has K rows and K columns
"""


def parameter_count(layers):
    total = 0
    for kind, *sizes in layers:
        if kind == "linear":
            total += sizes[0] * sizes[1] + sizes[1] * sizes[2]
        elif kind == "conv2d":
            total += sizes[0] * sizes[1] * sizes[2] + sizes[1] * sizes[3]
        elif kind == "batch_norm":
            total += 2 * sizes[0]
        elif kind == "embedding":
            total += sizes[0] * sizes[1]
        elif kind == "attention":
            total += 4 * (sizes[0] * sizes[0] + sizes[0])
    return total
