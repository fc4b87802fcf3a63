"""Takes everything that stays for outputs.

loses: what_stays
says: More than the outputs stays
"""


def what_stays(trace, batches, output_bytes):
    live = {}
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["address"]] = entry["size"]
        else:
            live.pop(entry["address"], None)
    return "losses" if sum(live.values()) < batches * output_bytes else "outputs"
