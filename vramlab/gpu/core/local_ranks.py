"""Whether the other ranks of a process group run as processes, and where they meet."""

from __future__ import annotations

import multiprocessing

import torch.distributed as dist

from vramlab.gpu.torch_internals import default_store


class Started:
    """How many ranks `torch.multiprocessing` has started together with this one."""

    rank_count = 0


def others_run(world_size: int) -> bool:
    """Return whether torchrun, torch.multiprocessing or the program has started the other ranks."""
    is_own_process = multiprocessing.parent_process() is not None and not Started.rank_count
    is_whole = 0 < world_size <= max(Started.rank_count, 1)
    return dist.is_torchelastic_launched() or is_own_process or is_whole


def shared_store() -> dist.Store | None:  # type: ignore[name-defined]
    """Return the store in which the ranks of the default group have met; None: this one is alone.

    A rank alone has one of its own (`rank_alone.py`). What is around the store depends on how many
    groups a process has had before, so this is the one below.
    """
    store = default_store()
    while isinstance(store, dist.PrefixStore):  # type: ignore[attr-defined]
        store = store.underlying_store
    shared = dist.TCPStore, dist.FileStore  # type: ignore[attr-defined]
    return store if isinstance(store, shared) else None
