"""Leaves out the losses of the last rank.

loses: kept_bytes
leaves: 2
says: You left out the losses
"""


def kept_bytes(schedule, ranks, rank, micro_batches, rows, width, layers, checkpointed):
    output_bytes = -(-4 * rows * width // 512) * 512
    in_flight = micro_batches if schedule == "GPipe" else ranks - rank
    return in_flight * (1 if checkpointed else layers) * output_bytes
