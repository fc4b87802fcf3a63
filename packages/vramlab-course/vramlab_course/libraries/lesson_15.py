"""Lesson 15: a small GPT-2 in bfloat16, by autocast and by accelerate."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from vramlab_course.libraries.lesson_13 import BATCH, LENGTH, small_gpt2
from vramlab_course.libraries.measuring import library, meet_cublas, step_sizes
from vramlab_course.libraries.results import LibraryRow, versioned


def measure() -> list[LibraryRow]:
    """Measure forward and backward in float32, under autocast, and as accelerate prepares it."""
    meet_cublas()
    # Of one process's accelerators, the first decides the precision of all.
    library("accelerate.state").AcceleratorState._reset_state(True)
    prepared = library("accelerate").Accelerator(mixed_precision="bf16").prepare(small_gpt2())
    autocast = torch.autocast("cuda", dtype=torch.bfloat16)
    return [
        LibraryRow("PyTorch: float32", _sizes(small_gpt2(), nullcontext())),
        LibraryRow("the course: autocast", _sizes(small_gpt2(), autocast)),
        LibraryRow(
            versioned("accelerate", 'mixed_precision="bf16"'), _sizes(prepared, nullcontext())
        ),
    ]


def _sizes(model: Any, precision: AbstractContextManager[object]) -> dict[str, int]:
    tokens = torch.zeros(BATCH, LENGTH, dtype=torch.long, device="cuda")

    def forward() -> torch.Tensor:
        with precision:
            loss: torch.Tensor = model(tokens, labels=tokens, use_cache=False).loss
        return loss

    return step_sizes(forward, model.parameters(), "held after forward", "peak")
