"""Adds up all that came.

loses: which_program
says: You add up all that came
"""


def which_program(trace, parameters_bytes):
    came = sum(entry["size"] for entry in trace if entry["action"] == "alloc")
    return "DDP" if came > 2.5 * parameters_bytes else "alone"
