"""Forgets that 256 scales of 8 bits have a scale of their own.

loses: four_bit_bytes
leaves: 1.5
says: You forgot that blocks of scales have scales of their own.
"""


def four_bit_bytes(shapes, block, double):
    total = 0
    for shape in shapes:
        numbers = math.prod(shape)  # noqa: F821  (imported in another cell of the notebook)
        total += block_bytes(numbers // 2)  # noqa: F821  (defined in another cell)
        if double:
            total += block_bytes(numbers // block) + 512  # noqa: F821
        else:
            total += block_bytes(4 * numbers // block)  # noqa: F821
    return total
