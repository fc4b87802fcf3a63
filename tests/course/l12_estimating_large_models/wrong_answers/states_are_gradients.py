"""Takes the optimizer's states for the gradients, as document 004 does.

loses: lasting_bytes
says: You forgot the gradients, or took them for the optimizer's states.
"""


def lasting_bytes(rows: int, precision: str, optimizer: str) -> int:
    weight = {"float32": 4, "autocast": 4, "pure": 2, "master": 6}[precision]
    updated = 2 if precision == "pure" else 4
    states = {"SGD": 0, "SGD with momentum": 1, "AdamW": 2}[optimizer]
    return rows * 1024 * (weight + states * updated)
