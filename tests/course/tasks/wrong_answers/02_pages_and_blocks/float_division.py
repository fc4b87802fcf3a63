"""Divides with /, and gets floats.

loses: block_bytes, segment_bytes
says: block_bytes gave the float 512.0, but bytes are counted in whole numbers
"""

import math


def block_bytes(requested_bytes):
    return math.ceil(requested_bytes / 512) * 512.0
