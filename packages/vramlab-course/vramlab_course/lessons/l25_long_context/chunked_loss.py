"""A cross-entropy in pieces, which never has the logits of all tokens at the same time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def whole_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of hidden (tokens, width) and targets (tokens)."""
    return functional.cross_entropy(functional.linear(hidden, weight), targets)


def transformers_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return the loss as transformers' causal language models compute it, and their logits.

    `ForCausalLMLoss` casts the logits to float32, and the model's output holds the logits until
    the backward pass is over (transformers 5.23.0, loss/loss_utils.py).
    """
    from transformers.loss.loss_utils import ForCausalLMLoss

    logits = functional.linear(hidden, weight)
    return ForCausalLMLoss(logits, targets, len(weight)), logits


def chunked_loss(hidden: Tensor, weight: Tensor, targets: Tensor, pieces: int) -> Tensor:
    """Return the same, piece by piece; the backward pass recomputes each piece."""

    def summed(part: Tensor, weight: Tensor, goals: Tensor) -> Tensor:
        return functional.cross_entropy(functional.linear(part, weight), goals, reduction="sum")

    losses: list[Tensor] = [
        checkpoint(summed, part, weight, goals, use_reentrant=False)
        for part, goals in zip(hidden.chunk(pieces), targets.chunk(pieces), strict=True)
    ]
    return torch.stack(losses).sum() / targets.numel()
