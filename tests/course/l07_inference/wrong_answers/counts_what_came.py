"""Adds up what came, and takes nothing off.

loses: what_stays
says: You add up what came
"""


def what_stays(trace, batches, output_bytes):
    came = sum(entry["size"] for entry in trace if entry["action"] == "alloc")
    if came / batches < output_bytes:
        return "losses"
    return "outputs" if came / batches == output_bytes else "graphs"
