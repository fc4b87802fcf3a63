"""One rank of a world, without the others: what it holds, not what it learns."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from vramlab.attachment import attached


@contextmanager
def alone(ranks: int, rank: int = 0) -> Iterator[None]:
    """Be one rank of a world in which nobody else is, on the GPU that is attached.

    On a virtual GPU without values a collective has the sizes that it would have among all ranks,
    and moves nothing. A real GPU would wait for the others: there it is a world of one rank, in
    which DDP holds the same.

    Args:
        ranks: how many the world has.
        rank: which one this is.
    """
    gpu = attached()
    if gpu is None or not gpu.virtual:
        rank, ranks = 0, 1
    dist.init_process_group("nccl", rank=rank, world_size=ranks, store=HashStore())
    try:
        yield
    finally:
        dist.destroy_process_group()
        _forget_meshes()


def _forget_meshes() -> None:
    """Empty DTensor's caches: they take a mesh of the same shape, whose groups are gone, for it.

    Source: torch/distributed/tensor/_sharding_prop.py and _redistribute.py, PyTorch 2.13.
    """
    if "torch.distributed.tensor" not in sys.modules:
        return
    from torch.distributed.tensor import _redistribute, debug

    debug._clear_sharding_prop_cache()
    _redistribute._gen_transform_infos.cache_clear()
