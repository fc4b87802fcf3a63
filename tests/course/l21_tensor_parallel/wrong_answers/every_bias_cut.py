"""Cuts all biases, those behind rows too.

loses: parameter_bytes
says: You cut every bias.
"""


def parameter_bytes(up, down, width, inner, ranks):
    return 2 * (2 * width * inner + inner + width) // ranks
