"""Divides the limit by what one more text takes, as if nothing else were there.

loses: largest_batch
says: You divided the limit by what one more text takes.
"""


def largest_batch(peaks: dict[str, int], limit_bytes: int) -> int:
    return limit_bytes * 8 // (peaks["16"] - peaks["8"])
