"""Every rank has all experts.

loses: trained_bytes
says: You gave every rank all experts.
"""


def trained_bytes(layers, width, inner, experts, ranks):
    tensors = [4 * width * width, experts * width, *[experts * inner * width] * 2]
    return 4 * layers * sum(-(-4 * numbers // 512) * 512 for numbers in tensors)
