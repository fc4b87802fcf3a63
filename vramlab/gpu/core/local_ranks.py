"""Whether the other ranks of a process group run as processes."""

from __future__ import annotations

import multiprocessing

import torch.distributed as dist


class Started:
    """How many ranks `torch.multiprocessing` has started together with this one."""

    rank_count = 0


def others_run(world_size: int) -> bool:
    """Return whether torchrun, torch.multiprocessing or the program has started the other ranks."""
    is_own_process = multiprocessing.parent_process() is not None and not Started.rank_count
    is_whole = 0 < world_size <= max(Started.rank_count, 1)
    return dist.is_torchelastic_launched() or is_own_process or is_whole
