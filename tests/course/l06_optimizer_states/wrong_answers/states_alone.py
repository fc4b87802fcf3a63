"""Does not look at the peak.

loses: which_optimizer
says: You told it from the states alone, and took the default way.
"""


def which_optimizer(readings):
    states = readings["first step"] - readings["gradients"]
    if states >= 2 * readings["model"]:
        return "AdamW foreach"
    return "SGD with momentum" if states else "SGD"
