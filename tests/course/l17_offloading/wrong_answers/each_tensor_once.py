"""Believes that save_on_cpu looks whether a tensor has been sent.

loses: moved_bytes
says: You moved each activation once.
"""


def moved_bytes(way, layers, batch, width, bias, input_gradient):
    rows, weight = 4 * batch * width, 4 * width * width
    weights = layers if input_gradient else layers - 1
    return (1 + layers) * rows + (weights * weight if way == "save_on_cpu" else 0)
