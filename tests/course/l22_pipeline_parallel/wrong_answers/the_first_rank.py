"""Looks at the first rank alone.

loses: which_schedule
leaves: 2
says: You told it from the first rank alone.
"""


def which_schedule(growth_bytes, output_bytes, layers, micro_batches):
    outputs = growth_bytes[0] // output_bytes
    if outputs == len(growth_bytes) * layers:
        return "1F1B"
    if outputs == micro_batches * layers:
        return "GPipe"
    return "1F1B, checkpointed" if outputs == len(growth_bytes) else "GPipe, checkpointed"
