"""What a piece of a program adds, and what it adds at most."""

from __future__ import annotations

import torch

import vramlab
from vramlab.units import MIB
from vramlab_course.tasks.gpus import allocate
from vramlab_course.tasks.readings import growth_bytes, peak_growth_bytes


def step() -> torch.Tensor:
    first = allocate(4 * MIB)
    second = allocate(6 * MIB)
    del first
    return second


def test_what_stays_and_what_is_given() -> None:
    with vramlab.VirtualGPU("T4"):
        before = allocate(20 * MIB)
        kept: list[torch.Tensor] = []
        assert growth_bytes(step) == 6 * MIB
        assert growth_bytes(lambda: kept.append(step())) == 6 * MIB
        assert torch.cuda.memory_allocated() == 26 * MIB  # the given one has gone again
        assert growth_bytes(kept.clear) == -6 * MIB
        del before


def test_the_most_at_any_moment() -> None:
    with vramlab.VirtualGPU("T4"):
        allocate(50 * MIB)  # a peak from before
        before = allocate(20 * MIB)
        assert peak_growth_bytes(step) == 10 * MIB  # 4 + 6
        assert torch.cuda.memory_allocated() == 20 * MIB
        del before
