"""VGG16, configuration D.

Source: arXiv 1409.1556, table 1, column D; the layers' order and the 7 x 7 average pooling are
torchvision's (torchvision/models/vgg.py).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

CONVOLUTIONS: tuple[int | Literal["pool"], ...] = (
    *(64, 64, "pool", 128, 128, "pool"),
    *(256, 256, 256, "pool", 512, 512, 512, "pool", 512, 512, 512, "pool"),
)
"""Output channels of each 3 x 3 convolution, and the 2 x 2 poolings between them."""

FULLY_CONNECTED = (512 * 7 * 7, 4096, 4096, 1000)
"""Widths: of the flattened features, and of each Linear layer's output."""

IMAGE = (3, 224, 224)
"""Channels, rows, columns."""


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
        """Score images (batch, 3, 224, 224): (batch, 1000)."""
        pooled = self.avgpool(self.features(images))
        scores: Tensor = self.classifier(torch.flatten(pooled, 1))
        return scores
