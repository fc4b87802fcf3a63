"""Lesson 12: what estimators say of a training step of a small GPT-2, and what it takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from vramlab_course.libraries.lesson_13 import LENGTH, small_gpt2
from vramlab_course.libraries.measuring import begin, library, meet_cublas, without_gpu
from vramlab_course.libraries.results import LibraryRow, versioned

BATCH = 8


def measure() -> list[LibraryRow]:
    """Measure a step, and ask accelerate, torchinfo and PyTorch's MemTracker."""
    meet_cublas(torch.float32)
    before_bytes = begin()
    model = small_gpt2()
    weights_bytes = sum(parameter.nbytes for parameter in model.parameters())
    optimizer = _train(model, "cuda")
    kept_bytes = torch.cuda.memory_allocated() - before_bytes
    peak_bytes = torch.cuda.max_memory_allocated() - before_bytes
    del optimizer
    usage = library("accelerate.commands.estimate").estimate_training_usage(
        weights_bytes, "float32"
    )
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long, device="cuda")
    summary = library("torchinfo").summary(model, input_data=tokens, verbose=0)
    total = summary.total_input + summary.total_output_bytes + summary.total_param_bytes
    return [
        LibraryRow("the course: kept between steps", {"size": kept_bytes}),
        LibraryRow("the course: peak of a step", {"size": peak_bytes}),
        LibraryRow(
            versioned("accelerate", "estimate-memory, training with Adam"), {"size": usage["step"]}
        ),
        LibraryRow(versioned("torchinfo", "estimated total"), {"size": total}),
        LibraryRow("PyTorch: MemTracker with fake tensors, peak", {"size": _tracked()}),
    ]


def _train(
    model: Any, device: str, between: Callable[[], object] = lambda: None
) -> torch.optim.Optimizer:
    optimizer = torch.optim.AdamW(model.parameters())
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long, device=device)
    for _ in range(2):
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        between()
    return optimizer


def _tracked() -> int:
    """Return the peak that PyTorch's tracker sees in the same program, without a GPU."""
    tracker = library("torch.distributed._tools.mem_tracker").MemTracker()
    with without_gpu(), FakeTensorMode():
        model = small_gpt2("cpu")
        tracker.track_external(model)
        with tracker:
            _train(model, "cpu", tracker.reset_mod_stats)
    (of_device,) = tracker.get_tracker_snapshot("peak").values()
    peak: int = of_device["Total"]
    return peak
