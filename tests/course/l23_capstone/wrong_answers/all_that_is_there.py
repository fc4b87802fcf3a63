"""Takes all that is there at the peak for the layers'.

loses: best_change
says: You let checkpoints take away all that is there at the peak.
"""


def best_change(trace, states_bytes, logits_bytes, ranks):
    now = most = 0
    for entry in trace:
        now += entry["size"] if entry["action"] == "alloc" else -entry["size"]
        most = max(most, now)
    saved = {
        "ZeRO-3": states_bytes * (ranks - 1) / ranks,
        "checkpoints": most,
        "half the micro-batch": most / 2,
    }
    return max(saved, key=saved.get)
