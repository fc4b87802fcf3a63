"""Forgets where fused Adam counts.

loses: state_bytes
leaves: 2
says: You forgot the counters of fused Adam
"""


def state_bytes(optimizer, fused, shapes):
    states = {"SGD": 0, "SGD with momentum": 1, "Adam": 2, "AdamW": 2}[optimizer]
    return states * sum(parameter_bytes(shape) for shape in shapes)  # noqa: F821
