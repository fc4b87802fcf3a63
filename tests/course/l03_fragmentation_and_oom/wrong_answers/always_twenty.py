"""Puts large tensors into segments of 20 MiB, too.

loses: reserved_bytes
leaves: 1
says: You put all tensors into segments of 20 MiB.
"""


def reserved_bytes(tensor_bytes, count):
    segment = 20 * 2**20
    if tensor_bytes > segment:
        return count * -(-tensor_bytes // segment) * segment
    in_a_segment = segment // tensor_bytes
    return -(-count // in_a_segment) * segment
