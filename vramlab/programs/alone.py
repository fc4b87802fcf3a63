"""One rank of a world, without the others: what it holds, not what it learns."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist

from vramlab.attachment import attached
from vramlab.errors import NeedsMoreGPUs
from vramlab.gpu.stand_ins.ranks.rank_alone import StoreOfRankAlone
from vramlab.gpu.torch_internals import clear_dtensor_caches
from vramlab.native.choice import is_inside

_RECORDER_SIZE = "TORCH_FR_BUFFER_SIZE"
"""Environment variable: events that the flight recorder keeps; with 0 it is off."""


@contextmanager
def alone(ranks: int, rank: int = 0) -> Iterator[None]:
    """Simulate a single rank of a world on the attached GPU, without the other ranks.

    On a virtual GPU without values a collective has the sizes that it would have among all ranks,
    and moves nothing; the native engine answers as if every other rank sent the same. A real GPU
    would wait for the others: there it is a world of one rank, in which DDP holds the same.

    Args:
        ranks: how many the world has.
        rank: which one this is.
    """
    if _waits_for_others():
        rank, ranks = 0, 1
    torch.cuda.init()  # else a DeviceMesh warns that no GPU was chosen
    store = StoreOfRankAlone()
    told_before = sys.excepthook
    with _without_notices():
        dist.init_process_group("nccl", rank=rank, world_size=ranks, store=store)
        if is_inside() and (world := dist.group.WORLD) is not None:
            # From 2.15 on PyTorch would split a mesh's groups off this one, as it is bound to a
            # GPU: how many ranks are in them, its C++ asks NCCL, and only all ranks together know.
            world.bound_device_id = None
        try:
            yield
        finally:
            if dist.is_initialized():  # else the program has done it
                dist.destroy_process_group()
            sys.excepthook = told_before  # PyTorch leaves one that begins every line with the rank
            _forget_meshes()


@contextmanager
def _without_notices() -> Iterator[None]:
    """Keep PyTorch 2.15 from printing what only matters among several ranks.

    Its flight recorder warns when one process is another rank than before. Its pipelines suggest
    communicators that do not wait for each other.
    """
    pipelining = logging.getLogger("torch.distributed.pipelining._p2p")
    level, size = pipelining.level, os.environ.get(_RECORDER_SIZE)
    pipelining.setLevel(logging.ERROR)
    os.environ[_RECORDER_SIZE] = "0"
    try:
        yield
    finally:
        pipelining.setLevel(level)
        os.environ.pop(_RECORDER_SIZE)
        if size is not None:
            os.environ[_RECORDER_SIZE] = size


def refuse_real_gpu(program: str) -> None:
    """Refuse a real GPU, for what is not the same in a world of one rank.

    Args:
        program: what torchrun is to start instead: its number of processes, and a module.

    Raises:
        NeedsMoreGPUs: the attached GPU is a real one.
    """
    if _waits_for_others():
        raise NeedsMoreGPUs(
            "a rank alone of a larger world is there on a virtual GPU only: call "
            "vramlab.attach(virtual=True). Real GPUs need a process each: run "
            f"python -m torch.distributed.run --standalone {program}"
        )


def _waits_for_others() -> bool:
    gpu = attached()
    return (gpu is None or not gpu.virtual) and not is_inside()


def _forget_meshes() -> None:
    """Empty DTensor's caches: they take a mesh of the same shape, whose groups are gone, for it.

    Source: torch/distributed/tensor/_sharding_prop.py and _redistribute.py, PyTorch 2.13.
    """
    clear_dtensor_caches()
