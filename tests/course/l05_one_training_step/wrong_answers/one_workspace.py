"""Knows one thread only.

loses: left_bytes
says: You counted one workspace.
"""

import itertools


def left_bytes(batch, widths):
    sizes = [4 * batch * widths[0], 4 * batch * widths[-1], 4]
    for inputs, outputs in itertools.pairwise(widths):
        sizes += 2 * [4 * inputs * outputs, 4 * outputs]
    return sum(-(-size // 512) * 512 for size in sizes) + 8_519_680
