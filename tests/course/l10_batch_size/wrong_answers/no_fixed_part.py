"""Divides the room by what a sample costs.

loses: largest_batch
says: You divided the room by what a sample costs, and forgot the fixed part.
"""


def largest_batch(measured, room):
    (small, small_peak), (large, large_peak) = measured
    return room // ((large_peak - small_peak) // (large - small))
