"""Finds the peak, but never thinks of the optimizer.

loses: where_is_the_peak
says: You never find the optimizer
"""


def where_is_the_peak(trace, step_at, logits_bytes):
    live, now, most, at_peak = {}, 0, 0, []
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["address"]] = entry["size"]
            now += entry["size"]
        else:
            live.pop(entry["address"], None)
            now -= entry["size"]
        if now > most:
            most, at_peak = now, list(live.values())
    return "loss" if logits_bytes in at_peak else "layers"
