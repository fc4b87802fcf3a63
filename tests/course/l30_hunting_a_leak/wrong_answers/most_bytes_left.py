"""Takes the line that holds most bytes at the end.

loses: growing_line
says: You added up the bytes that are left at the end
"""


def growing_line(trace):
    alive = {}
    for event in trace:
        if event["action"] == "alloc":
            alive[event["address"]] = event
        else:
            alive.pop(event["address"], None)
    held = Counter()  # noqa: F821  (imported in another cell)
    for event in alive.values():
        if event["line"]:
            held[event["line"]] += event["bytes"]
    return held.most_common(1)[0][0]
