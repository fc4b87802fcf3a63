"""Reads document 003's line as what was meant.

loses: first_step_percent
leaves: 2
says: You took `loss += loss / steps` for a division.
"""


def first_step_percent(loop, steps, batches):
    if loop == "graphs retained":
        return 50 * (steps + 1)
    in_window = steps + batches % steps
    return 100 * in_window if loop == "not divided" else 100 * in_window // steps
