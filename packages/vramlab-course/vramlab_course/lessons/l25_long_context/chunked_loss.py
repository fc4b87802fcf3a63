"""A cross-entropy in pieces: the logits of all tokens are never there at once."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint


def whole_loss(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    """Give the mean cross-entropy of (tokens, width) against targets (tokens), as it is written."""
    return functional.cross_entropy(functional.linear(hidden, weight), targets)


def chunked_loss(hidden: Tensor, weight: Tensor, targets: Tensor, pieces: int) -> Tensor:
    """Give the same in pieces; each is computed again in the backward pass."""

    def summed(part: Tensor, weight: Tensor, goals: Tensor) -> Tensor:
        return functional.cross_entropy(functional.linear(part, weight), goals, reduction="sum")

    losses: list[Tensor] = [
        checkpoint(summed, part, weight, goals, use_reentrant=False)
        for part, goals in zip(hidden.chunk(pieces), targets.chunk(pieces), strict=True)
    ]
    return torch.stack(losses).sum() / targets.numel()
