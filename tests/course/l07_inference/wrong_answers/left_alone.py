"""Does not look at the peak.

loses: which_mode
leaves: 2.5
says: You told it from what is left alone.
"""


def which_mode(readings):
    kept = readings["left"] - readings["input"]
    if kept == 0:
        return "eval() and no_grad()"
    return "eval()" if kept == 2 * readings["middle"] else "train()"
