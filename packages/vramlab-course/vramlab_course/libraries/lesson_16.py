"""Lesson 16: what optimizers keep for a matrix of 4096 x 1024, and what they take to step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from vramlab_course.lessons.l16_lean_optimizers.experiment import LEAN_OPTIMIZERS
from vramlab_course.libraries.measuring import begin, library, meet_cublas
from vramlab_course.libraries.results import LibraryRow, versioned

SHAPE = (4096, 1024)


def measure() -> list[LibraryRow]:
    """Measure the course's 8-bit AdamW, bitsandbytes, torchao, transformers and PyTorch."""
    meet_cublas()
    bits, ao = library("bitsandbytes").optim, library("torchao.optim")
    hugging = library("transformers.optimization")
    optimizers: dict[str, Callable[[list[nn.Parameter]], Any]] = {
        "the course: 8-bit AdamW": LEAN_OPTIMIZERS["8-bit AdamW"].make,
        versioned("bitsandbytes", "AdamW8bit"): bits.AdamW8bit,
        versioned("bitsandbytes", "PagedAdamW8bit"): bits.PagedAdamW8bit,
        versioned("torchao", "AdamW8bit"): ao.AdamW8bit,
        versioned("torchao", "AdamWFp8"): ao.AdamWFp8,
        versioned("torchao", "AdamW4bit"): ao.AdamW4bit,
        versioned("transformers", "Adafactor"): hugging.Adafactor,
        "PyTorch: Adafactor": torch.optim.Adafactor,
        "PyTorch: AdamW": torch.optim.AdamW,
    }
    return [LibraryRow(name, _sizes(make)) for name, make in optimizers.items()]


def _sizes(make: Callable[[list[nn.Parameter]], Any]) -> dict[str, int]:
    weight = nn.Parameter(torch.zeros(*SHAPE, device="cuda"))
    weight.grad = torch.zeros_like(weight)
    optimizer = make([weight])
    before_bytes = begin()
    optimizer.step()
    states_bytes = torch.cuda.memory_allocated() - before_bytes
    before_bytes = begin()
    optimizer.step()
    return {
        "states": states_bytes,
        "temporaries of a step": torch.cuda.max_memory_allocated() - before_bytes,
    }
