"""VGG16, configuration D: its layers, its parameters, and the sizes of what they put out.

Source: arXiv 1409.1556, table 1, column D; the layers' order and the 7 x 7 average pooling are
torchvision's (torchvision/models/vgg.py).
"""

from __future__ import annotations

from vramlab.formulas.parameters import conv2d, linear
from vramlab.formulas.storage import block_bytes, tensor_bytes

CONVOLUTIONS = (64, 64, "pool", 128, 128, "pool", 256, 256, 256, "pool")
CONVOLUTIONS += (512, 512, 512, "pool", 512, 512, 512, "pool")
"""Output channels of each 3 x 3 convolution, and the 2 x 2 poolings between them."""

FULLY_CONNECTED = (512 * 7 * 7, 4096, 4096, 1000)
"""Widths: of the flattened features, and of each Linear layer's output."""

IMAGE = (3, 224, 224)
"""Channels, rows, columns."""


def parameter_counts() -> list[int]:
    """Elements of each weight and bias, in the order of `model.parameters()`."""
    counts: list[int] = []
    channels = IMAGE[0]
    for outputs in CONVOLUTIONS:
        if isinstance(outputs, int):
            counts += [conv2d(channels, outputs, 3, bias=False), outputs]
            channels = outputs
    for inputs, outputs in zip(FULLY_CONNECTED, FULLY_CONNECTED[1:], strict=False):
        counts += [linear(inputs, outputs, bias=False), outputs]
    return counts


def parameters() -> int:
    """All parameters: 138,357,544, the document's 138M."""
    return sum(parameter_counts())


def feature_counts() -> list[tuple[str, int]]:
    """Kind ('convolution' or 'pooling') and elements of each layer's output, for one image."""
    counts: list[tuple[str, int]] = []
    channels, size = IMAGE[0], IMAGE[1]
    for outputs in CONVOLUTIONS:
        if isinstance(outputs, int):
            channels = outputs
            counts.append(("convolution", channels * size * size))
        else:
            size //= 2
            counts.append(("pooling", channels * size * size))
    return counts


def layer_outputs_bytes(batch: int = 1) -> int:
    """The image, and the output of every convolution, pooling and Linear layer, float32.

    ReLU works in place, and the average pooling to 7 x 7 has nothing to do. This is how the
    document's 58.12 MB is added up (nothing is rounded to blocks).
    """
    channels, rows, columns = IMAGE
    elements = channels * rows * columns
    elements += sum(count for _, count in feature_counts()) + sum(FULLY_CONNECTED[1:])
    return tensor_bytes((batch, elements))


def forward_growth_bytes(batch: int = 1) -> int:
    """What a forward pass in training leaves on the GPU, besides workspaces and the image.

    The output of every layer, because the next one needs it in the backward pass; and besides: for
    every pooling the place of each maximum, an int64; the output of the average pooling, a copy;
    for both dropouts an output, and a mask of one byte per element.
    """
    growth_bytes = 0
    for kind, count in feature_counts():
        growth_bytes += _block(batch, count)
        if kind == "pooling":
            growth_bytes += _block(batch, count, "int64")
    features, *widths = FULLY_CONNECTED
    growth_bytes += _block(batch, features)
    for width in widths:
        growth_bytes += _block(batch, width)
    for width in widths[:-1]:
        growth_bytes += _block(batch, width) + _block(batch, width, "bool")
    return growth_bytes


def _block(batch: int, count: int, dtype: str = "float32") -> int:
    return block_bytes(tensor_bytes((batch, count), dtype))
