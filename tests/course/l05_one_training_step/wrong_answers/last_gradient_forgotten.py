"""Forgets that the last weight's gradient is being made.

loses: peak_bytes
says: You left out the gradient of the last weight.
"""


def peak_bytes(batch: int, width: int, layers: int) -> int:
    activation, weight = 4 * batch * width, 4 * width * width
    return layers * weight + (layers + 3) * activation + 2 * 512 + 2 * WORKSPACE  # noqa: F821
