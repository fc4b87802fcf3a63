"""Halves what GELU keeps, too.

loses: kept_bytes
says: You halved what GELU keeps.
"""


def kept_bytes(rows, width, readers, together, recipe):
    activation, weights = rows * width, (readers + 1) * width * width
    layers = (1 if together else readers) + 1
    if recipe == "8 bits, kept":
        return layers * (activation + 8) + weights + activation
    return 5 * activation + (2 * weights if recipe == "16 bits" else 0)
