"""Starts the worker first: then there is no room for the table.

loses: hand_over
says: The worker has its memory, but your own program runs out of memory.
"""


def hand_over(prepare, start_worker):
    start_worker()
    return prepare().sum(dim=0)
