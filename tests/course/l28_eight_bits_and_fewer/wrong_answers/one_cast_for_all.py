"""Lets layers that read the same input share its cast.

loses: kept_bytes
says: You let the layers share one cast of their input.
leaves: 3
"""


def kept_bytes(rows, width, readers, together, recipe):
    activation, weights = rows * width, (readers + 1) * width * width
    layers = (1 if together else readers) + 1
    if recipe == "8 bits, kept":
        return 2 * activation + 8 * layers + weights + 2 * activation
    return 6 * activation + (2 * weights if recipe == "16 bits" else 0)
