"""Real processes of torchrun, which exchange real numbers over gloo as GPUs would over NCCL.

Results are those of one process; each rank's memory is what the same rank measures alone, without
values and without the others.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from warm_python import warm_python

pytestmark = pytest.mark.long

RANKS = Path(__file__).parents[2] / "support" / "ranks_of_tests.py"
WORLD = 2
WAYS = ("ddp", "fsdp", "tensor parallel", "pipeline")


def lines_of(command: list[str], **environment: str) -> list[Any]:
    result = subprocess.run(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]


@cache
def together() -> dict[int, Any]:
    """What each rank of a world of processes measures."""
    torchrun = [warm_python(), "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, f"--nproc-per-node={WORLD}", str(RANKS), "values", *WAYS]
    return {line["rank"]: line for line in lines_of(command)}


@cache
def alone(rank: int) -> Any:
    """What a rank measures for which there are no others, and no values."""
    command = [warm_python(), str(RANKS), "sizes", *WAYS[:-1]]
    (line,) = lines_of(command, RANK=str(rank), WORLD_SIZE=str(WORLD))
    return line


def in_one_process() -> float:
    """The same two steps on the CPU: what the parameters come to."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4)))
    torch.manual_seed(1)
    samples = torch.randn(8, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(2):
        optimizer.zero_grad()
        model(samples).square().mean().backward()
        optimizer.step()
    return sum(p.detach().double().abs().sum().item() for p in model.parameters())


@pytest.mark.parametrize("way", ["ddp", "fsdp", "tensor parallel"])
def test_training_comes_to_what_one_process_comes_to(way: str) -> None:
    """To six digits: sums in another order round the float32 parameters otherwise."""
    expected = in_one_process()
    values = [together()[rank][way]["value"] for rank in range(WORLD)]
    assert values == pytest.approx([expected] * WORLD, rel=1e-6)


def test_each_stage_of_a_pipeline_gets_its_gradients() -> None:
    """Two micro-batches of four: their mean losses' gradients are averaged by the schedule."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Linear(64, 64, bias=False) for _ in range(4)))
    torch.manual_seed(1)
    model(torch.randn(8, 64)).square().mean().backward()
    gradients = [
        p.grad.double().abs().sum().item() for p in model.parameters() if p.grad is not None
    ]
    values = [together()[rank]["pipeline"]["value"] for rank in range(WORLD)]
    assert values == pytest.approx([sum(gradients[:2]), sum(gradients[2:])], rel=1e-6)


@pytest.mark.parametrize("rank", range(WORLD))
@pytest.mark.parametrize("way", ["ddp", "fsdp", "tensor parallel"])
def test_memory_is_the_same_with_values_and_without(way: str, rank: int) -> None:
    assert together()[rank][way]["stages"] == alone(rank)[way]["stages"]
