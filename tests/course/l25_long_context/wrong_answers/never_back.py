"""Forgets the way back of Ulysses.

loses: sent_bytes
leaves: 2
says: You forgot that Ulysses sends what was attended back.
"""


def sent_bytes(way, ranks, tokens, heads, head_size):
    part = 4 * heads * head_size * (tokens // ranks)
    return 2 * part * (ranks - 1) if way == "ring" else 3 * part * (ranks - 1) // ranks
