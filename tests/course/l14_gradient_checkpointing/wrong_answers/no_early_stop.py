"""Takes the two implementations of checkpoint for each other.

loses: which_strategy
leaves: 2
says: You took the two implementations for each other.
"""


def which_strategy(readings):
    steps, states = readings["steps"], readings["kept"] / readings["state"]
    again = readings["backward FLOPs"] / readings["forward FLOPs"]
    if again <= 2:
        return "nothing" if states == 9 * steps else "products kept"
    if states > steps:
        return "segments"
    return "each step" if again > 2.75 else "each step, reentrant"
