"""Chains of equal steps: the documents' nodes, and steps with inner activations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

Forward = Callable[[nn.Sequential, Tensor], Tensor]
"""A forward pass over a chain."""


def linear_chain(layers: int, width: int, *, bias: bool = False, **where: Any) -> nn.Sequential:
    """Make Linear layers one after the other: each keeps its input (rows, width) and nothing else.

    Args:
        layers: how many.
        width: of each.
        bias: whether they have biases.
        where: device and dtype, as of `nn.Linear`.
    """
    return nn.Sequential(*(nn.Linear(width, width, bias=bias, **where) for _ in range(layers)))


class MLPStep(nn.Sequential):
    """One step of the chain: Linear to four times the width, GELU, Linear back; no biases."""

    def __init__(self, width: int) -> None:
        super().__init__(
            nn.Linear(width, 4 * width, bias=False),
            nn.GELU(),
            nn.Linear(4 * width, width, bias=False),
        )


def mlp_chain(steps: int, width: int) -> nn.Sequential:
    """Return a chain of steps with inner activations, nine times a state in all."""
    return nn.Sequential(*(MLPStep(width) for _ in range(steps)))


def prepared(chain: nn.Sequential, x: Tensor) -> nn.Sequential:
    """Return the chain on the GPU, after a step that brings cuBLAS's workspaces."""
    chain.to("cuda")
    chain(x[:8]).sum().backward()
    chain.zero_grad()
    return chain


def train(forward: Forward, chain: nn.Sequential, x: Tensor) -> None:
    """Run a chain forward and backward; the loss is the sum of what comes out."""
    loss = forward(chain, x).sum()
    loss.backward()
