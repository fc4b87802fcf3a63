"""Moves every weight.

loses: moved_bytes
leaves: 3
says: You moved the first weight in every case.
"""


def moved_bytes(way, layers, batch, width, bias, input_gradient):
    rows, weight = 4 * batch * width, 4 * width * width
    if way == "each once":
        return (1 + layers) * rows
    return (1 + 2 * layers) * rows + (layers * weight if way == "save_on_cpu" else 0)
