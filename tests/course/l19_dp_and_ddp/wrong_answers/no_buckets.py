"""Thinks that DDP adds nothing.

loses: ddp_bytes
says: You forgot DDP's buckets
"""


def ddp_bytes(way, moment, optimizer, width, layers):
    model = 4 * layers * width * width
    held = model
    if moment == "after backward" and way != "DDP with views":
        held += model
    if moment != "before the first step" and optimizer == "AdamW":
        held += 2 * model
    return held
