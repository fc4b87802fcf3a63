"""Gives thousands of bytes, and so floats.

loses: block_bytes
says: block_bytes gave the float 0.512, but bytes are counted in whole numbers
"""

import math


def block_bytes(requested_bytes):
    return math.ceil(requested_bytes / 512) * 512 / 1000
