"""A rank alone: as large a world as one likes, where it is virtual."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from vramlab import VirtualGPU
from vramlab.programs.alone import alone


def test_it_is_the_rank_that_was_asked_for() -> None:
    with VirtualGPU("T4"), alone(16_384, rank=9):
        assert (dist.get_world_size(), dist.get_rank()) == (16_384, 9)
        dist.all_reduce(torch.zeros(3, device="cuda"))
    assert not dist.is_initialized()


def test_it_leaves_the_world_also_when_something_fails() -> None:
    with VirtualGPU("T4"):
        with pytest.raises(ZeroDivisionError), alone(4):
            raise ZeroDivisionError
        assert not dist.is_initialized()
        with alone(2):
            assert dist.get_world_size() == 2
