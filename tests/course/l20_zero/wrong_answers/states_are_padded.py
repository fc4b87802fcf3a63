"""Makes states for rows that are not there.

loses: kept_bytes
leaves: 3
says: You counted states for rows that are not there.
"""


def kept_bytes(stage, layers, width, ranks, rank):
    layer = 4 * width * width
    if stage == "DDP":
        return 4 * layers * layer
    if stage == "ZeRO-1":
        own = layers // ranks + (1 if rank < layers % ranks else 0)
        return 2 * layers * layer + 2 * own * layer
    return layers * 4 * -(-width // ranks) * 4 * width
