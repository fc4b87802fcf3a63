"""Counts the masks, and not what dropout makes of the softmax.

loses: train_extra_bytes
says: You counted the masks alone.
"""


def train_extra_bytes(batch, length, width, heads):
    masks = [batch * heads * length * length, batch * length * width, batch * length * width]
    return sum(-(-size // 512) * 512 for size in masks)
