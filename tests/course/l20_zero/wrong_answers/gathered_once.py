"""Forgets that parameters have been given back when backward needs them.

loses: sent_bytes
leaves: 2
says: You gathered parameters once under ZeRO-3.
"""


def sent_bytes(stage, layers, width, ranks):
    if stage in ("DDP", "ZeRO-1"):
        whole = layers * 4 * width * width
        return 2 * (ranks - 1) * whole // ranks + (whole if stage == "ZeRO-1" else 0)
    whole = layers * 4 * width * -(-width // ranks) * ranks
    return 2 * (ranks - 1) * whole // ranks
