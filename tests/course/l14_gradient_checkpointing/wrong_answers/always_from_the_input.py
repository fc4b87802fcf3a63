"""Document 004's recompute-all, whatever the slots.

loses: revolve_forwards
says: Further slots shorten the way.
"""


def revolve_forwards(steps, slots):
    return steps * (steps + 1) // 2
