"""Divides attention and router as well.

loses: trained_bytes
says: You divided everything by the ranks.
"""


def trained_bytes(layers, width, inner, experts, ranks):
    tensors = [4 * width * width, experts * width, *[experts * inner * width] * 2]
    return 4 * layers * sum(-(-4 * (numbers // ranks) // 512) * 512 for numbers in tensors)
