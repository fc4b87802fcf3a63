"""Acts on the largest term, however little of it a change takes away.

loses: best_change
says: You went by the largest term.
"""


def best_change(trace, states_bytes, logits_bytes, ranks):
    now = most = 0
    for entry in trace:
        now += entry["size"] if entry["action"] == "alloc" else -entry["size"]
        most = max(most, now)
    return "ZeRO-3" if states_bytes > most else "checkpoints"
