"""Looks at what is kept between steps, and at nothing else.

loses: which_stage
leaves: 1.5
says: You went by what is kept.
"""


def which_stage(readings):
    per_parameter = readings["kept"] / readings["parameters"]
    if per_parameter > 15:
        return "DDP"
    return "ZeRO-1" if per_parameter > 8 else "ZeRO-2"
