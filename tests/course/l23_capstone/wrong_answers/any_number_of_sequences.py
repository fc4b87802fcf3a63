"""Forgets that micro-batches have to divide the share.

loses: largest_micro_batch
says: they do not divide the share of a GPU.
"""


def largest_micro_batch(one_bytes, two_bytes, share, limit_bytes):
    return 1 + (limit_bytes - one_bytes) // (two_bytes - one_bytes)
