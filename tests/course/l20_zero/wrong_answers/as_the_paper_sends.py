"""Counts as the ZeRO paper does: two times for all stages but the third.

loses: sent_bytes
leaves: 2
says: You took ZeRO-1 for the paper's.
"""


def sent_bytes(stage, layers, width, ranks):
    rows = width if stage in ("DDP", "ZeRO-1") else -(-width // ranks) * ranks
    around = (ranks - 1) * layers * 4 * width * rows // ranks
    return (3 if stage == "ZeRO-3" else 2) * around
