"""Which of the processes that torchrun has started this one is."""

from __future__ import annotations

import os


def launched_rank() -> int:
    """Return this process's rank among those that run; 0 where torchrun has not started it."""
    is_launched = "TORCHELASTIC_RUN_ID" in os.environ
    return int(os.environ.get("RANK", "0")) if is_launched else 0


def launched_on_this_machine() -> int:
    """Return how many processes torchrun has started here; 1 where it has not."""
    is_launched = "TORCHELASTIC_RUN_ID" in os.environ
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if is_launched else 1


def rank_of_world() -> tuple[int, int]:
    """Return the rank that this process is meant to be, and of how many."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
