"""Gives each number a byte.

loses: four_bit_bytes
says: You gave each number a byte.
"""


def four_bit_bytes(shapes, block, double):
    total = 0
    for shape in shapes:
        numbers = math.prod(shape)  # noqa: F821  (imported in another cell of the notebook)
        scales = numbers // block
        total += block_bytes(numbers)  # noqa: F821  (defined in another cell)
        if double:
            total += block_bytes(scales) + block_bytes(4 * -(-scales // 256)) + 512  # noqa: F821
        else:
            total += block_bytes(4 * scales)  # noqa: F821
    return total
