"""Numbers without their scales.

loses: weights_bytes
says: You forgot the scales
"""


def weights_bytes(embedding, matrices, bits, group):
    total = block_bytes(embedding[0] * embedding[1] * 2)  # noqa: F821  (defined in another cell)
    for rows, columns in matrices:
        total += block_bytes(rows * columns * bits // 8)  # noqa: F821
    return total
