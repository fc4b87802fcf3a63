"""Warms up, then compares the addresses and sizes of the blocks of two snapshots."""

import gc

import torch


def active():
    gc.collect()
    return sum(
        block["state"] == "active_allocated"
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
    )


def leaks(step):
    for _ in range(12):
        step()
    before = active()
    for _ in range(3):
        step()
    return active() > before
