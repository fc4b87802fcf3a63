"""Ways of running a training step: nobody counts, the virtual GPU counts, MemTracker counts.

Each way is a context manager: it builds a workload and gives what runs one step of it.
"""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker

import vramlab
from vramlab.progress import working


@dataclass(frozen=True)
class Training:
    """A model that can be trained one step at a time.

    Attributes:
        model: the model, on its device.
        optimizer: of its parameters.
        step: trains one step.
    """

    model: nn.Module
    optimizer: torch.optim.Optimizer
    step: Callable[[], None]


Workload = Callable[[str], Training]
"""Builds a model, optimizer and batch on a device: "meta" or "cuda"."""

Way = Callable[[Workload], contextlib.AbstractContextManager[Callable[[], None]]]


@contextlib.contextmanager
def bare_meta(workload: Workload) -> Iterator[Callable[[], None]]:
    """Plain meta tensors: shapes only."""
    yield workload("meta").step


@contextlib.contextmanager
def virtual_gpu(workload: Workload) -> Iterator[Callable[[], None]]:
    """The same program on a virtual A100."""
    with vramlab.VirtualGPU("A100-80GB"):
        yield workload("cuda").step


@contextlib.contextmanager
def mem_tracker(workload: Workload) -> Iterator[Callable[[], None]]:
    """torch's own tracker over meta tensors: it counts, without an allocator."""
    training = workload("meta")
    tracker = MemTracker()
    tracker.track_external(training.model, training.optimizer)

    def tracked_step() -> None:
        tracker.reset_mod_stats()  # it refuses a second step otherwise
        training.step()

    with tracker:
        yield tracked_step


WAYS: Mapping[str, Way] = {
    "bare meta": bare_meta,
    "virtual GPU": virtual_gpu,
    "MemTracker": mem_tracker,
}

ONCE = ("MemTracker",)
"""Ways that take so long that they are measured in the first round only."""


def measure(
    workload: Workload,
    rounds: int,
    names: Iterable[str] = WAYS,
    *,
    ways: Mapping[str, Way] = WAYS,
) -> dict[str, list[float]]:
    """CPU seconds of one step, for each way and round; of the slow ways for the first round only.

    The ways take turns, so that all meet the same machine. CPU time leaves out what other programs
    on the machine take; the step before the first only warms up.

    Args:
        workload: what is trained.
        rounds: how often each way is built and measured.
        names: of the ways.
        ways: how each runs.
    """
    seconds: dict[str, list[float]] = {name: [] for name in names}
    with working("measuring") as progress:
        for number in range(rounds):
            for name in seconds:
                if number and name in ONCE:
                    continue
                progress.tell(f"round {number + 1} of {rounds}, {name}")
                with ways[name](workload) as step:
                    step()
                    gc.collect()
                    start = time.process_time()
                    step()
                    seconds[name].append(time.process_time() - start)
                gc.collect()
    return seconds
