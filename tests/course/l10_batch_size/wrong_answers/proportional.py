"""Takes the peak for proportional to the batch.

loses: peak_at
says: You took the peak for proportional to the batch.
"""


def peak_at(measured, batch):
    large, peak = measured[1]
    return peak * batch // large
