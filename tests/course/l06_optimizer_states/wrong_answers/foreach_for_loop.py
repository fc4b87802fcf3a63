"""Takes loop and foreach for each other.

loses: which_optimizer
leaves: 2
says: You took loop and foreach for each other.
"""


def which_optimizer(readings):
    states = readings["first step"] - readings["gradients"]
    extra = readings["peak of second step"] - readings["first step"]
    if states < 2 * readings["model"]:
        return "SGD with momentum" if states else "SGD"
    if extra == 0:
        return "AdamW fused"
    return "AdamW loop" if extra == readings["model"] else "AdamW foreach"
