"""Counts the rests of segments that still hold a tensor.

loses: releasable_bytes
says: You answered all that is cached
"""


def releasable_bytes(stats):
    return stats["reserved_bytes.all.current"] - stats["allocated_bytes.all.current"]
