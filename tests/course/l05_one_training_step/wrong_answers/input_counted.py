"""Counts the input with the outputs.

loses: forward_bytes
says: You counted the input as well.
"""


def forward_bytes(batch, widths):
    return sum(-(-4 * batch * width // 512) * 512 for width in widths)
