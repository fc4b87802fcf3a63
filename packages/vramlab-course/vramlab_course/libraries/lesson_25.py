"""Lesson 25: what a loss of 8,192 tokens takes, from the head's input on."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import LinearCrossEntropyOptions, functional

from vramlab_course.lessons.l25_long_context.chunked_loss import (
    chunked_loss,
    whole_loss,
)
from vramlab_course.libraries.measuring import library, meet_cublas, step_sizes
from vramlab_course.libraries.results import LibraryRow, versioned

TOKENS, WIDTH, VOCABULARY = 8192, 4096, 128_256
"""A sequence, and Llama 3.1 8B's sizes."""


def measure() -> list[LibraryRow]:
    """Measure the course's losses, PyTorch's, transformers' and Liger's."""
    hidden, head = (
        torch.zeros(rows, WIDTH, dtype=torch.bfloat16, device="cuda", requires_grad=True)
        for rows in (TOKENS, VOCABULARY)
    )
    targets = torch.zeros(TOKENS, dtype=torch.long, device="cuda")
    meet_cublas()
    for_causal_lm = library("transformers.loss.loss_utils").ForCausalLMLoss
    liger = library("liger_kernel.transformers")
    fused, plain = liger.LigerFusedLinearCrossEntropyLoss(), liger.LigerCrossEntropyLoss()

    def of_transformers() -> tuple[Tensor, Tensor]:
        logits = functional.linear(hidden, head)[None]  # a model's output holds them
        return for_causal_lm(logits, targets[None], vocab_size=VOCABULARY), logits

    losses: dict[str, Callable[[], Tensor | tuple[Tensor, ...]]] = {
        "the course: cross_entropy": lambda: whole_loss(hidden, head, targets),
        "the course: in 64 pieces": lambda: chunked_loss(hidden, head, targets, 64),
        versioned("transformers", "labels="): of_transformers,
        "PyTorch: linear_cross_entropy, in chunks": lambda: functional.linear_cross_entropy(
            hidden, head, targets, options=LinearCrossEntropyOptions()
        ),
        versioned("liger-kernel", "cross-entropy"): lambda: plain(
            functional.linear(hidden, head), targets
        ),
        versioned("liger-kernel", "fused linear cross-entropy"): lambda: fused(
            head, hidden, targets
        ),
    }
    return [
        LibraryRow(name, step_sizes(loss, (hidden, head), "left by forward", "peak"))
        for name, loss in losses.items()
    ]
