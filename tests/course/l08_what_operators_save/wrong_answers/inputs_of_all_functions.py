"""Lets ReLU keep its input as well.

loses: block_growth
says: You let every activation function keep its input.
"""


def block_growth(rows, width, factor, activation, dropout, residual, dtype):
    item = 4 if dtype == "float32" else 2
    outer = rows * width
    return (outer + 2 * factor * outer) * item + (outer if dropout else 0)
