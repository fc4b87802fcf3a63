"""Adds up the blocks, as if they could be cut in two.

loses: reserved_bytes
says: You add up the sizes and round to 2 MiB.
"""


def reserved_bytes(tensor_bytes):
    total_bytes = sum(-(-size_bytes // 512) * 512 for size_bytes in tensor_bytes)
    return -(-total_bytes // 2**21) * 2**21
