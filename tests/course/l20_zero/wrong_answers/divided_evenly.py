"""Divides every shard evenly.

loses: kept_bytes
leaves: 2.5
says: You divided shards evenly.
"""


def kept_bytes(stage, layers, width, ranks, rank):
    layer = 4 * width * width
    if stage == "DDP":
        return 4 * layers * layer
    if stage == "ZeRO-1":
        own = layers // ranks + (1 if rank < layers % ranks else 0)
        return 2 * layers * layer + 2 * own * layer
    return 4 * layers * layer // ranks
