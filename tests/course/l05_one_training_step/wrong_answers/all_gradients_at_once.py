"""Has every weight's gradient at the peak.

loses: peak_bytes
says: You counted all gradients of parameters.
"""


def peak_bytes(batch, width, layers):
    activation, weight = 4 * batch * width, 4 * width * width
    return 2 * layers * weight + (layers + 3) * activation + 1024 + 2 * 8_519_680
