"""Adds up the tensors, as if they could be cut in two.

loses: reserved_bytes
says: You add up the tensors and round the sum.
"""


def reserved_bytes(tensor_bytes, count):
    step = (20 if tensor_bytes < 10 * 2**20 else 2) * 2**20
    return -(-tensor_bytes * count // step) * step
