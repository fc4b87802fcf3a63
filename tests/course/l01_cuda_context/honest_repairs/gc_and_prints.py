"""Collects garbage, prints what is there, and asks for a reading of the peak."""

import gc
import logging

import torch

logging.basicConfig(level=logging.INFO)
logger = logging.getLogger(__name__)


def hand_over(prepare, start_worker):
    torch.cuda.reset_peak_memory_stats()
    table = prepare()
    logger.info("table: %s", table.shape)
    sums = table.sum(dim=0)
    table = None
    gc.collect()
    torch.cuda.empty_cache()
    print("{:.1f} MiB".format(torch.cuda.memory_allocated() / 2**20))
    print(torch.cuda.memory_summary(abbreviated=True))
    start_worker()
    return sums


if __name__ == "__main__":
    print("tried out elsewhere")
