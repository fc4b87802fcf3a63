"""Makes rows of its own instead of the table, so that the worker can start first.

says: prepare() was not called
"""

import torch


def hand_over(prepare, start_worker):
    start_worker()
    sums = torch.zeros(8192, device="cuda")
    for row in range(1024):
        numbers = torch.arange(row * 8192, (row + 1) * 8192, device="cuda", dtype=torch.float32)
        sums += numbers.remainder_(251)
    return sums
