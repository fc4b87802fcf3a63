"""Overlooks the small number.

loses: adafactor_bytes
says: You forgot the root mean square
"""


def adafactor_bytes(momentum, shapes):
    total = 0
    for shape in shapes:
        whole = block_bytes(4 * math.prod(shape))  # noqa: F821  (defined in another cell)
        total += whole if momentum else 0
        if len(shape) == 1:
            total += whole
        else:
            *stack, rows, columns = shape
            total += block_bytes(4 * math.prod(stack) * rows)  # noqa: F821
            total += block_bytes(4 * math.prod(stack) * columns)  # noqa: F821
    return total
