"""Counts the casts of autocast among what lasts.

loses: lasting_bytes
leaves: 2
says: You counted the casts of autocast.
"""


def lasting_bytes(rows: int, precision: str, optimizer: str) -> int:
    weight = {"float32": 4, "autocast": 6, "pure": 2, "master": 6}[precision]
    gradient = 2 if precision in ("pure", "master") else 4
    updated = 2 if precision == "pure" else 4
    states = {"SGD": 0, "SGD with momentum": 1, "AdamW": 2}[optimizer]
    return rows * 1024 * (weight + gradient + states * updated)
