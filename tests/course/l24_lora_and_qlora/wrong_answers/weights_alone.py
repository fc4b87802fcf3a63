"""Tells QLoRA by its weights, and does not look at what forward leaves.

loses: which_tuning
leaves: 1.5
says: You looked at the weights alone.
"""


def which_tuning(readings):
    if readings["gradients and states"] > 3 * readings["parameters"]:
        return "full"
    return "LoRA" if readings["model"] > readings["parameters"] else "QLoRA"
