"""Believes document 002: accumulation takes no extra memory.

loses: peak_bytes
says: You believe document 002: no extra memory.
"""


def peak_bytes(rows, steps, width, layers):
    activation, weight = 4 * (rows // steps) * width, 4 * width * width
    return layers * weight + (layers + 3) * activation + weight + 1024
