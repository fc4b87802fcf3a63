"""Leaves out what index_add keeps.

loses: kept_bytes
says: What does index_add keep?
"""


def kept_bytes(tokens, width, inner, experts, top_k):
    pairs = tokens * top_k
    sizes = [4 * tokens * experts, 4 * pairs, *[8 * pairs] * 3, 4 * tokens * width]
    sizes += [*[4 * pairs * width] * 2, *[4 * pairs * inner] * 2]
    return sum(-(-size // 512) * 512 for size in sizes)
