"""Keeps every cast until the backward pass.

loses: added_bytes
leaves: 2.5
says: You kept all casts after the region.
"""


def added_bytes(rows, widths, autocast, inside):
    if not autocast:
        return 4 * rows * sum(widths[1:])
    parameters = sum(inputs * width + width for inputs, width in pairwise(widths))  # noqa: F821
    return 2 * rows * sum(widths) + 2 * parameters
