"""Forgets that every step runs once more to be recorded.

loses: revolve_forwards
says: You counted the advances alone.
"""


def revolve_forwards(steps, slots):
    repeated = 0
    while math.comb(slots + repeated, slots) < steps:  # noqa: F821  (imported in another cell of the notebook)
        repeated += 1
    return repeated * steps - math.comb(slots + repeated, slots + 1)  # noqa: F821
