"""Forgets the scales.

loses: copy_bytes
says: You forgot the scales.
"""


def copy_bytes(rows, columns, scaling):
    return rows * columns
