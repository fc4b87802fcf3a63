"""Begins before the first step.

loses: which_leak
leaves: 1.5
says: You count what the first step brings for good
"""


def which_leak(allocated):
    if any(later < earlier for earlier, later in pairwise(allocated)):  # noqa: F821  (imported in another cell)
        return "cycle"
    if allocated[0] == allocated[-1]:
        return "none"
    return "cache" if allocated[-1] == allocated[-5] else "list"
