"""Does not empty the cache: the table's memory stays in PyTorch's cache.

loses: hand_over
says: The worker needs 48.00 MiB and the driver has 10.00 MiB.
"""


def hand_over(prepare, start_worker):
    table = prepare()
    sums = table.sum(dim=0)
    del table
    start_worker()
    return sums
