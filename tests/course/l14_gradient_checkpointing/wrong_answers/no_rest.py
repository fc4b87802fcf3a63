"""Divides, and forgets the rest.

loses: kept_bytes
says: You gave all segments the same length.
"""


def kept_bytes(steps, segments, rows, width):
    return (segments - 1 + 9 * (steps // segments)) * 4 * rows * width
