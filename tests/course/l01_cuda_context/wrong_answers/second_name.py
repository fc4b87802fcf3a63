"""The program as it was given: a view still holds the table's memory.

loses: hand_over
says: The worker needs 48.00 MiB and the driver has 30.00 MiB.
"""

import torch


def hand_over(prepare, start_worker):
    table = prepare()
    rows = table.view(-1, table.shape[1])
    sums = rows.sum(dim=0)
    del table
    torch.cuda.empty_cache()
    start_worker()
    return sums
