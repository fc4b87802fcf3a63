"""Believes document 001: SGD costs as much as the weights.

loses: state_bytes
leaves: 2
says: You gave plain SGD a state.
"""


def state_bytes(optimizer, fused, shapes):
    states = {"SGD": 1, "SGD with momentum": 1, "Adam": 2, "AdamW": 2}[optimizer]
    kept = states * sum(parameter_bytes(shape) for shape in shapes)  # noqa: F821
    return kept + (512 * len(shapes) if fused and optimizer.startswith("Adam") else 0)
