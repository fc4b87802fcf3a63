"""Checkpointing by torch.utils.checkpoint and by transformers, with nothing of the course's own."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)


def each_step(chain: nn.Sequential, x: Tensor) -> Tensor:
    """Checkpoint each step."""
    for step in chain:
        x = checkpoint(step, x, use_reentrant=False)
    return x


def keep_products(_: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Return the policy of selective checkpointing: outputs of matrix products are kept."""
    products = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if op in products else CheckpointPolicy.PREFER_RECOMPUTE


def selective(chain: nn.Sequential, x: Tensor) -> Tensor:
    """Checkpoint each step but for its matrix products."""
    contexts = functools.partial(create_selective_checkpoint_contexts, keep_products)
    for step in chain:
        x = checkpoint(step, x, use_reentrant=False, context_fn=contexts)
    return x


def enable_checkpointing(model: Any, use_reentrant: bool = False) -> None:
    """Checkpoint each layer of a transformers model, by the name that its version has for it."""
    enable = getattr(model, "activation_checkpointing_enable", None)
    enable = enable or model.gradient_checkpointing_enable
    enable({"use_reentrant": use_reentrant})
