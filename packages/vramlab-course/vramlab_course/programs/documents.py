"""The documents' models, written out: VGG16 and the Linear models."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn

from vramlab.programs.vgg16 import VGG16 as VGG16


class LinearWithOwnAdd(nn.Linear):
    """A Linear layer whose bias is added by an op of its own, as in x @ W.t() + b."""

    def forward(self, input: Tensor) -> Tensor:
        """Map (batch, in_features) to (batch, out_features)."""
        return input @ self.weight.t() + self.bias


def linear_net(widths: tuple[int, ...], *, fused_bias: bool = True) -> nn.Sequential:
    """Make document 001's model: Linear layers net_a, net_b, net_c, ... one after the other.

    Args:
        widths: of the input and of each layer's output.
        fused_bias: nn.Linear, or a layer that adds its bias in an op of its own.
    """
    layer = nn.Linear if fused_bias else LinearWithOwnAdd
    names = (f"net_{letter}" for letter in "abcdefghijklmnopqrstuvwxyz")
    pairs = pairwise(widths)
    return nn.Sequential(
        OrderedDict(
            (name, layer(inputs, outputs))
            for (inputs, outputs), name in zip(pairs, names, strict=False)
        )
    )


class RepeatedLinear(nn.Module):
    """Document 003's model: one Linear layer in float16, without bias, applied several times.

    The document's code says 10 times, its table shows 3, and its memory is that of 2.
    """

    def __init__(self, applications: int, width: int = 1024) -> None:
        super().__init__()
        self.model = nn.Linear(width, width, bias=False, dtype=torch.float16)
        self.applications = applications

    def forward(self, x: Tensor) -> Tensor:
        """Map (batch, width) to (batch, width)."""
        for _ in range(self.applications):
            x = self.model(x)
        return x
