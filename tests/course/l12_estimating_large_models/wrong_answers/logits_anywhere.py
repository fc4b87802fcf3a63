"""Looks for logits in the whole step, and not at its peak.

loses: where_is_the_peak
says: You go by the logits' blocks anywhere
"""


def where_is_the_peak(trace, step_at, logits_bytes):
    return "loss" if any(entry["size"] == logits_bytes for entry in trace) else "layers"
