"""Chooses what takes the least, whatever it costs.

loses: choose
says: A cheaper plan fits, too: one without checkpoints.
"""


def choose(**facts):
    return {"zero": 3, "micro_batch": 1, "checkpointing": "full"}
