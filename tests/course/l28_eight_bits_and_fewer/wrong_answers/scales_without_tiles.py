"""Counts the scales that say something, and not the tiles that the product reads.

loses: copy_bytes
says: The product reads them in tiles
leaves: 2
"""


def copy_bytes(rows, columns, scaling):
    scales = {"tensor": 4, "rows": 4 * rows, "blocks": rows * columns // 32}
    return rows * columns + scales[scaling]
