"""Gives the eager answer for the compiled block.

loses: kept_bytes
says: You gave the eager answer for the compiled block.
leaves: 2
"""


def kept_bytes(rows, width, inner, compiled):
    return rows * (8 * width + 8 * inner + 4)
