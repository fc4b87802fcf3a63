"""Takes dropout's mask for numbers of the same dtype.

loses: block_growth
says: You took dropout's mask for floats.
"""


def block_growth(rows, width, factor, activation, dropout, residual, dtype):
    item = 4 if dtype == "float32" else 2
    outer = rows * width
    middles = 2 if activation in ("gelu", "silu") else 1
    return (outer + middles * factor * outer + (outer if dropout else 0)) * item
