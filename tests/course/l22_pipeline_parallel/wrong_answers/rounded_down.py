"""Rounds down, so that the ranks wait a little too long.

loses: fewest_micro_batches
says: You rounded down
"""


def fewest_micro_batches(ranks, most_percent):
    return max(1, (ranks - 1) * (100 - most_percent) // most_percent)
