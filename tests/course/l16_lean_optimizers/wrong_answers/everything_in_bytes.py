"""Quantizes small parameters too.

loses: blockwise_bytes
says: You quantized small parameters too.
"""


def blockwise_bytes(block, shapes):
    total = 2048
    for shape in shapes:
        count = math.prod(shape)  # noqa: F821  (imported in another cell of the notebook)
        scales = -(-count // block)
        total += 2 * (block_bytes(count) + block_bytes(4 * scales))  # noqa: F821
    return total
