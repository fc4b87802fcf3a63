"""Gives the first batch that does not fit.

loses: largest_batch
says: Your batch is the first that does not fit. Round down.
"""


def largest_batch(measured, room):
    (small, small_peak), (large, large_peak) = measured
    per_sample = (large_peak - small_peak) // (large - small)
    return (room - small_peak) // per_sample + small + 1
