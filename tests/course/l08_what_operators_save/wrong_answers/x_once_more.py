"""Counts x, which was there before.

loses: block_growth
says: You counted x.
"""


def block_growth(rows, width, factor, activation, dropout, residual, dtype):
    item = 4 if dtype == "float32" else 2
    outer = rows * width
    middles = 2 if activation in ("gelu", "silu") else 1
    return (2 * outer + middles * factor * outer) * item + (outer if dropout else 0)
