"""Lesson 13: a step of a small GPT-2 in micro-batches, by hand and by accelerate."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from vramlab_course.libraries.measuring import begin, library, meet_cublas
from vramlab_course.libraries.results import LibraryRow, versioned

BATCH, MICRO_BATCHES, LENGTH = 16, 4, 256


def small_gpt2(device: str = "cuda") -> Any:
    """Make a GPT-2 of transformers with 4 layers, of 19 million parameters."""
    models = library("transformers")
    config = models.GPT2Config(n_layer=4, n_embd=512, n_head=8, vocab_size=12_288, n_positions=256)
    model = models.GPT2LMHeadModel(config)
    return model if device == "cpu" else model.to(device)  # fake tensors cannot be moved in place


def measure() -> list[LibraryRow]:
    """Measure the whole batch, micro-batches by hand, and accelerate's `accumulate()`."""
    meet_cublas(torch.float32)
    return [
        LibraryRow("PyTorch: the whole batch", _sizes(1, by_accelerate=False)),
        LibraryRow("the course: four micro-batches", _sizes(MICRO_BATCHES, by_accelerate=False)),
        LibraryRow(
            versioned("accelerate", "accumulate(), four micro-batches"),
            _sizes(MICRO_BATCHES, by_accelerate=True),
        ),
    ]


def _sizes(micro_batches: int, *, by_accelerate: bool) -> dict[str, int]:
    before_bytes = begin()
    model = small_gpt2()
    optimizer: Any = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.zeros(BATCH // micro_batches, LENGTH, dtype=torch.long, device="cuda")
    if by_accelerate:
        helper = library("accelerate").Accelerator(gradient_accumulation_steps=micro_batches)
        model, optimizer = helper.prepare(model, optimizer)
    for _ in range(3):
        torch.cuda.reset_peak_memory_stats()
        for _ in range(micro_batches):
            if by_accelerate:
                with helper.accumulate(model):
                    helper.backward(_loss(model, tokens))
                    optimizer.step()
                    optimizer.zero_grad()
            else:
                (_loss(model, tokens) / micro_batches).backward()
        if not by_accelerate:
            optimizer.step()
            optimizer.zero_grad()
    return {
        "kept between steps": torch.cuda.memory_allocated() - before_bytes,
        "peak of a step": torch.cuda.max_memory_allocated() - before_bytes,
    }


def _loss(model: Any, tokens: Tensor) -> Tensor:
    loss: Tensor = model(tokens, labels=tokens).loss
    return loss
