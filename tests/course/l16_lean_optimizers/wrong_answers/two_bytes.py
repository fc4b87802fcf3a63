"""Document 001's rule: two bytes for each number.

loses: blockwise_bytes
says: You forgot the scales
"""


def blockwise_bytes(block, shapes):
    total = codebooks = 0
    for shape in shapes:
        count = math.prod(shape)  # noqa: F821  (imported in another cell of the notebook)
        if count < 4096:
            total += 2 * block_bytes(4 * count)  # noqa: F821
        else:
            total += 2 * block_bytes(count)  # noqa: F821
            codebooks = 2048
    return total + codebooks
