"""A rank alone: as large a world as one likes, where it is virtual."""

from __future__ import annotations

import os

import pytest
import torch
import torch.distributed as dist

from vramlab import VirtualGPU
from vramlab.programs.alone import alone
from vramlab.programs.pipeline_schedules import schedule_of_torch


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


@pytest.mark.parametrize("name", ["1F1B", "GPipe"])
def test_one_rank_after_another_prints_nothing(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """PyTorch 2.15 would warn about the other rank, and suggest another backend to a pipeline."""
    from torch.distributed.pipelining import PipelineStage

    before = dict(os.environ)
    for rank in range(2):
        with VirtualGPU("T4"), alone(2, rank):
            layer = torch.nn.Linear(8, 8, device="cuda")
            rows = torch.empty(4, 8, device="meta", requires_grad=rank > 0)
            device = torch.device("cuda", 0)
            stage = PipelineStage(layer, rank, 2, device, input_args=(rows,), output_args=(rows,))
            schedule_of_torch(name)(stage, 2, loss_fn=lambda y, _: y.sum())
    assert capfd.readouterr() == ("", "")
    assert dict(os.environ) == before
