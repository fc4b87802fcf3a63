"""Counts each token once.

loses: kept_bytes
says: You counted each token once.
"""


def kept_bytes(tokens, width, inner, experts, top_k):
    sizes = [4 * tokens * experts, 4 * tokens, *[8 * tokens] * 3, 4 * tokens * width]
    sizes += [*[4 * tokens * width] * 3, *[4 * tokens * inner] * 2]
    return sum(-(-size // 512) * 512 for size in sizes)
