"""Counts what the steps hand on, not what they keep inside.

loses: kept_bytes
says: You left out what a recorded step keeps inside
"""


def kept_bytes(steps, segments, rows, width):
    last = steps - (segments - 1) * (steps // segments)
    return (segments - 1 + last) * 4 * rows * width
