"""Lesson 19: a replica with Adam on rank 0 of 8, by DDP, accelerate and DeepSpeed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from vramlab_course.libraries.measuring import alone_by_environment, begin, library, meet_cublas
from vramlab_course.libraries.results import LibraryRow, versioned
from vramlab_course.programs.chains import linear_chain

RANKS, LAYERS, WIDTH, ROWS = 8, 8, 2048, 64


def measure() -> list[LibraryRow]:
    """Measure DDP with its settings, and what accelerate makes of a model."""
    meet_cublas(torch.float32)

    def prepare(model: nn.Module) -> nn.Module:
        prepared: nn.Module = library("accelerate").Accelerator().prepare(model)
        return prepared

    ways: dict[str, Callable[[nn.Module], nn.Module]] = {
        "one GPU": lambda model: model,
        "PyTorch: DDP": DistributedDataParallel,
        "PyTorch: DDP, gradient_as_bucket_view": lambda model: DistributedDataParallel(
            model, gradient_as_bucket_view=True
        ),
        "PyTorch: DDP, buckets of 100 MiB": lambda model: DistributedDataParallel(
            model, bucket_cap_mb=100
        ),
        versioned("accelerate", "prepare()"): prepare,
    }
    with alone_by_environment(RANKS):
        return [LibraryRow(name, _sizes(way)) for name, way in ways.items()]


def _sizes(wrap: Callable[[nn.Module], nn.Module]) -> dict[str, int]:
    before_bytes = begin()
    model: Any = linear_chain(LAYERS, WIDTH, device="cuda")
    wrapped = wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    x = torch.zeros(ROWS, WIDTH, device="cuda")
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        wrapped(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    del x
    return {
        "kept between steps": torch.cuda.memory_allocated() - before_bytes,
        "peak of a step": torch.cuda.max_memory_allocated() - before_bytes,
    }
