"""Rounds every segment to 2 MiB.

loses: segment_bytes
leaves: 2
says: You round to 2 MiB whatever the size.
"""


def segment_bytes(requested_bytes):
    return -(-requested_bytes // 2**21) * 2**21
