"""Become one rank of the world that torchrun has started.

For example:

    with join("T4") as rank:
        model = DistributedDataParallel(make_model().to("cuda"))
        ...
        rank.report(allocated_bytes=torch.cuda.memory_allocated())
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from vramlab.gpu import VirtualGPU
from vramlab_course.rules import RULES

REPORTS = "VRAMLAB_REPORTS"
"""Environment variable: the folder into which each rank writes its report."""


@dataclass(frozen=True)
class Rank:
    """One process of the world, with a GPU of its own."""

    number: int
    """0, 1, 2, ...: which one it is, and the index of its GPU."""
    world: int
    """How many there are."""

    def report(self, **values: Any) -> None:
        """Tell who started torchrun: JSON data, once."""
        text = json.dumps({"rank": self.number, "pid": os.getpid(), **values})
        (Path(os.environ[REPORTS]) / f"{self.number}.json").write_text(text)


@contextmanager
def join(gpu: str) -> Iterator[Rank]:
    """Join the process group "nccl", with GPU number `rank` as the current one.

    Args:
        gpu: which GPU virtual ones stand for, where there are too few real ones.
    """
    rank = Rank(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    with ExitStack() as stack:
        if torch.cuda.device_count() < rank.world:
            gpus = VirtualGPU(gpu, count=rank.world, values=True, torch_version=RULES)
            stack.enter_context(gpus)
        torch.cuda.set_device(rank.number)
        dist.init_process_group("nccl")
        stack.callback(dist.destroy_process_group)
        yield rank
