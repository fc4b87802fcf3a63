"""The documents' models, written out: VGG16 and the Linear models."""

from __future__ import annotations

from collections import OrderedDict
from itertools import pairwise

import torch
from torch import Tensor, nn

from vramlab_course.formulas.vgg16 import CONVOLUTIONS, FULLY_CONNECTED, IMAGE


class VGG16(nn.Module):
    """VGG16 with torchvision's layers and names: 138,357,544 parameters.

    Images (batch, 3, 224, 224) to scores (batch, 1000).
    """

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = IMAGE[0]
        for outputs in CONVOLUTIONS:
            if isinstance(outputs, int):
                layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.ReLU(inplace=True)]
                channels = outputs
            else:
                layers.append(nn.MaxPool2d(2, 2))
        features, hidden, hidden_again, classes = FULLY_CONNECTED
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d((7, 7))
        self.classifier = nn.Sequential(
            nn.Linear(features, hidden),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden, hidden_again),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(hidden_again, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Images (batch, 3, 224, 224) to scores (batch, 1000)."""
        pooled = self.avgpool(self.features(images))
        scores: Tensor = self.classifier(torch.flatten(pooled, 1))
        return scores


class LinearWithOwnAdd(nn.Linear):
    """A Linear layer whose bias is added by an op of its own, as in x @ W.t() + b."""

    def forward(self, input: Tensor) -> Tensor:
        """(batch, in_features) to (batch, out_features)."""
        return input @ self.weight.t() + self.bias


def linear_net(widths: tuple[int, ...], *, fused_bias: bool = True) -> nn.Sequential:
    """Document 001's model: Linear layers net_a, net_b, net_c, ... one after the other.

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
        """(batch, width) to (batch, width)."""
        for _ in range(self.applications):
            x = self.model(x)
        return x
