"""Compares the waiting with the work, not with all of the time.

loses: fewest_micro_batches
says: You compared the waiting with the work.
"""


def fewest_micro_batches(ranks, most_percent):
    return max(1, -(-(ranks - 1) * 100 // most_percent))
