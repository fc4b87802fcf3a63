"""Looks at all that is reserved.

loses: which_phase
leaves: 1
says: You looked at what is reserved in all.
"""


def which_phase(allocated, reserved, pools):
    if max(pools) == 0:
        return "no graphs"
    return "recording" if reserved[-1] > reserved[0] else "replaying"
