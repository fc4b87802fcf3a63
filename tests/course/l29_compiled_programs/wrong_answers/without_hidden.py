"""Leaves out what the last product reads.

loses: kept_bytes
says: You left out what the last product reads
"""


def kept_bytes(rows, width, inner, compiled):
    kept = 2 * width + 4 * inner + 4
    return rows * (kept if compiled else kept + 6 * width + 2 * inner)
