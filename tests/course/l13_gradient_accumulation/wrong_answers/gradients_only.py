"""Does not look at the memory.

loses: what_is_wrong
leaves: 3
says: Gradients alone do not tell everything.
"""


def what_is_wrong(steps, percents, allocated):
    if percents[0] == 50 * (steps + 1):
        return "graphs retained"
    if percents[0] == 100 * steps:
        return "not divided"
    if percents[0] == 100 * (steps + 1):
        return "added to itself"
    if min(percents) < 100:
        return "last window"
    return "left over" if max(percents) > 100 else "right"
