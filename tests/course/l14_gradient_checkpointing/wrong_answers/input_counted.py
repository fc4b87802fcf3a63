"""Counts the input of the chain, which was there before.

loses: peak_states
says: You counted the input of the chain.
"""


def peak_states(steps, segments):
    last = steps - (segments - 1) * (steps // segments)
    return segments + last + 1
