"""Counts the blocks that are left at the end, optimizer states among them.

loses: growing_line
says: You counted everything that is left at the end
"""


def growing_line(trace):
    alive = {}
    for event in trace:
        if event["action"] == "alloc":
            alive[event["address"]] = event["line"]
        else:
            alive.pop(event["address"], None)
    return Counter(filter(None, alive.values())).most_common(1)[0][0]  # noqa: F821
