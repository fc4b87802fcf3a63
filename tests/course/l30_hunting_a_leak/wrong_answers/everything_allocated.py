"""Counts allocations, and forgets that most of them are freed.

loses: growing_line
says: You counted all allocations
"""


def growing_line(trace):
    lines = [event["line"] for event in trace if event["action"] == "alloc" and event["line"]]
    return max(set(lines), key=lines.count)
