"""Forgets that a ReLU makes an output of its own.

loses: peak_bytes
leaves: 2.5
says: You left the activation functions out.
"""


def peak_bytes(rows, widths, in_place):
    made = [4 * rows * width for width in widths[1:]]
    return max(before + after for before, after in zip([0, *made], made))  # noqa: B905
