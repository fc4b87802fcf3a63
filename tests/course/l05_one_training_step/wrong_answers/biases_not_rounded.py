"""Counts the numbers of biases, and not their blocks.

loses: left_bytes
leaves: 1.5
says: You did not round the biases.
"""

import itertools


def left_bytes(batch: int, widths: list[int]) -> int:
    parameters = 0
    for inputs, outputs in itertools.pairwise(widths):
        parameters += block_bytes(4 * inputs * outputs) + 4 * outputs  # noqa: F821
    x, y = block_bytes(4 * batch * widths[0]), block_bytes(4 * batch * widths[-1])  # noqa: F821
    return 2 * parameters + x + y + 512 + 2 * WORKSPACE  # noqa: F821
