"""Goes by how much is left, not by its pieces.

loses: which_program
says: You go by the sum alone
"""


def which_program(trace, parameters_bytes):
    live = {}
    for entry in trace:
        if entry["action"] == "alloc":
            live[entry["address"]] = entry["size"]
        else:
            live.pop(entry["address"], None)
    return "DDP" if round(sum(live.values()) / parameters_bytes) == 3 else "alone"
