"""States of optimizers smaller than AdamW's: sizes of blocks, without unsplit remainders.

Source: torch/optim/_adafactor.py and _muon.py of PyTorch 2.13; transformers/optimization.py of
transformers 5 (Adafactor); vramlab_course/programs/blockwise_adam.py, after arXiv
2110.02861.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vramlab.cuda_rules.rounding import ceil_div
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes

Shape = Sequence[int]

SMALLEST_QUANTIZED = 4096
"""Parameters of fewer elements keep float32 states in 8-bit optimizers."""
CODEBOOKS_BYTES = 2 * 256 * 4
"""The values that a byte stands for, signed and unsigned: once for all parameters."""


def adafactor_bytes(shape: Shape, momentum: bool = False, root_mean_square: bool = False) -> int:
    """Return Adafactor's states for one float32 parameter.

    Of the second moments of a matrix only the means of rows and columns, (..., rows) and (...,
    columns); of a vector all. With more than two dimensions the last two are rows and columns.

    Args:
        shape: of the parameter.
        momentum: transformers' beta1: a first moment of the parameter's own size besides.
        root_mean_square: transformers' version keeps the parameter's own in a number on the GPU.
    """
    size_bytes = block_bytes(tensor_bytes(shape)) if momentum else 0
    if len(shape) < 2:
        size_bytes += block_bytes(tensor_bytes(shape))
    else:
        *others, rows, columns = shape
        size_bytes += block_bytes(tensor_bytes((*others, rows)))
        size_bytes += block_bytes(tensor_bytes((*others, columns)))
    return size_bytes + (block_bytes(4) if root_mean_square else 0)


def blockwise_bytes(shape: Shape, block: int = 256) -> int:
    """Return 8-bit AdamW's states for one parameter.

    Per number, they take two bytes, and 2 x 4 / block bytes.
    """
    count = math.prod(shape)
    if count < SMALLEST_QUANTIZED:
        return 2 * block_bytes(tensor_bytes(shape))
    return 2 * (block_bytes(count) + block_bytes(4 * ceil_div(count, block)))


def gpt2_shapes(
    layers: int, width: int, vocabulary: int = 50257, positions: int = 1024
) -> list[tuple[int, ...]]:
    """Return the shapes of a GPT-2's parameters, in order; the output layer shares the embedding.

    Source: transformers/models/gpt2/modeling_gpt2.py.
    """
    w = width
    layer: list[tuple[int, ...]] = [(w,), (w,), (w, 3 * w), (3 * w,), (w, w), (w,)]
    layer += [(w,), (w,), (w, 4 * w), (4 * w,), (4 * w, w), (w,)]
    return [(vocabulary, w), (positions, w), *(layers * layer), (w,), (w,)]
