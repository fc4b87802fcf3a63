"""Chooses what takes the least, whatever it costs.

loses: choose
says: one without checkpointing
"""


def choose(**facts):
    return {"zero": 3, "micro_batch": 1, "checkpointing": "full"}
