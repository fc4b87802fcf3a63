"""Takes what is held after the forward pass for the peak.

loses: peak_states
says: You counted what is held after the forward pass.
"""


def peak_states(steps, segments):
    last = steps - (segments - 1) * (steps // segments)
    return segments - 1 + last
