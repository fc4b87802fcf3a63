"""Leaves out the rest of a row.

loses: weights_bytes
leaves: 1.5
says: You left out the last group of a row where it is not full.
"""


def weights_bytes(embedding, matrices, bits, group):
    def block(size):
        return -(-size // 512) * 512

    total = block(embedding[0] * embedding[1] * 2)
    for rows, columns in matrices:
        total += block(rows * columns * bits // 8) + block(rows * (columns // group) * 2)
    return total
