"""Lets every block of the ring come home.

loses: sent_bytes
leaves: 2
says: You let the ring turn once more.
"""


def sent_bytes(way, ranks, tokens, heads, head_size):
    part = 4 * heads * head_size * (tokens // ranks)
    return 2 * part * ranks if way == "ring" else 4 * part * (ranks - 1) // ranks
