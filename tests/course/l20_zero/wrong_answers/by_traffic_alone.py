"""Looks at what is sent, and at nothing else.

loses: which_stage
says: You went by what is sent.
"""


def which_stage(readings):
    around = (readings["ranks"] - 1) / readings["ranks"] * 4 * readings["parameters"]
    return "DDP" if readings["sent"] < 2.5 * around else "ZeRO-3"
