"""Takes the peak for proportional to the batch.

loses: largest_batch
says: You took the peak for proportional to the batch.
"""


def largest_batch(peaks: dict[str, int], limit_bytes: int) -> int:
    return limit_bytes * 16 // peaks["16"]
