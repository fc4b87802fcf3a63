"""Whether the other ranks of a process group run as processes, and where they meet."""

from __future__ import annotations

import multiprocessing
from typing import Any

import torch.distributed as dist

from vramlab.gpu.torch_internals import default_store

c10d: Any = dist


class Started:
    """How many ranks `torch.multiprocessing` has started together with this one."""

    rank_count = 0


def others_run(world_size: int) -> bool:
    """Return whether torchrun, torch.multiprocessing or the program has started the other ranks."""
    is_own_process = multiprocessing.parent_process() is not None and not Started.rank_count
    is_whole = 0 < world_size <= max(Started.rank_count, 1)
    return dist.is_torchelastic_launched() or is_own_process or is_whole


def shared_store() -> Any:
    """Return the store in which the ranks of this process group have met; None: this one is alone.

    torchrun's and those of `env://` and `tcp://` reach other processes. A rank alone has one of its
    own (`rank_alone.py`).
    """
    store = default_store()
    below = store
    while isinstance(below, c10d.PrefixStore):
        below = below.underlying_store
    return store if isinstance(below, c10d.TCPStore) else None
