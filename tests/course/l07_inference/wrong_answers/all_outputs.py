"""Keeps everything, as training does.

loses: peak_bytes
says: You added up all outputs.
"""


def peak_bytes(rows, widths, in_place):
    hidden = sum(4 * rows * width for width in widths[1:-1])
    return (hidden if in_place else 2 * hidden) + 4 * rows * widths[-1]
