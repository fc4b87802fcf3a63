"""Believes that a frozen layer keeps its input as any other.

loses: kept_bytes
says: You let frozen layers keep their inputs.
"""


def kept_bytes(layers, rows, width, rank):
    wide, thin = block_bytes(4 * rows * width), block_bytes(4 * rows * rank)  # noqa: F821  (defined in another cell)
    total = 0
    recorded = False
    for number, layer in enumerate(layers):
        recorded = recorded or layer != "frozen"
        total += wide * recorded * (2 if number else 1)
        total += thin * (layer == "adapted")
    return total
