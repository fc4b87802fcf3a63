"""LoRA and QLoRA: adapter parameters, 4-bit weights, and what a frozen layer saves.

Source: arXiv 2106.09685 (LoRA) §4; arXiv 2305.14314 (QLoRA) §3; for what ops keep,
tools/autograd/derivatives.yaml of PyTorch 2.13: a product saves its input only if its weight needs
a gradient.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

from vramlab.cuda_rules.rounding import ceil_div
from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes

Layer = Literal["learns", "adapted", "frozen"]
"""A Linear layer: its weight learns; it is frozen, with adapters; or frozen, without."""


def adapter_parameters(shapes: Iterable[tuple[int, int]], rank: int) -> int:
    """Return the parameters of adapters of matrices: rank x (rows + columns) for each (§4.1)."""
    return sum(rank * (rows + columns) for rows, columns in shapes)


def bits_per_parameter(block: int = 64, scales_block: int = 0) -> float:
    """Return the bits per weight: 4, and a fraction of a scale (QLoRA §3).

    The scale is a float32 number, or has 8 bits with double quantization.

    Args:
        block: numbers that share a scale.
        scales_block: scales that share one of their own; 0 if scales are float32.
    """
    return 4 + (8 / block + 32 / (block * scales_block) if scales_block else 32 / block)


def four_bit_bytes(count: int, block: int = 64, scales_block: int = 0) -> int:
    """Return the blocks of a 4-bit weight: numbers, scales, and with double quantization a mean.

    Args:
        count: numbers of the weight.
        block: numbers that share a scale.
        scales_block: scales that share one of their own; 0 if scales are float32.
    """
    scales = ceil_div(count, block)
    if not scales_block:
        return block_bytes(ceil_div(count, 2)) + block_bytes(4 * scales)
    second = block_bytes(4 * ceil_div(scales, scales_block)) + block_bytes(4)
    return block_bytes(ceil_div(count, 2)) + block_bytes(scales) + second


def chain_kept_bytes(
    layers: Sequence[Layer], rows: int, width: int, rank: int = 0, dtype: str = "float32"
) -> int:
    """Return what the forward pass saves of a chain of Linear layers, each followed by a GELU.

    Before the first layer that learns something, autograd records nothing. From there on a GELU
    keeps its input, a layer its own only if something beside it learns; an adapter keeps its thin
    product as well. The chain's input was there before, and its output is not counted.
    """
    wide = block_bytes(tensor_bytes((rows, width), dtype))
    thin = block_bytes(tensor_bytes((rows, rank), dtype)) if rank else 0
    first = next((n for n, layer in enumerate(layers) if layer != "frozen"), len(layers))
    inputs = sum(layer != "frozen" for layer in layers[max(first, 1) :])
    thins = sum(layer == "adapted" for layer in layers)
    return (len(layers) - first + inputs) * wide + thins * thin


def states_bytes(parameters: int, each: int = 6) -> int:
    """Return gradients and AdamW's states: 2 and 4 bytes per trained parameter, all in 16 bits."""
    return each * parameters


def llama_matrices(width: int, feed_forward: int) -> list[tuple[int, int]]:
    """Return the seven matrices of a layer of LLaMA (arXiv 2302.13971 §2.2), (outputs, inputs)."""
    square, up, down = (width, width), (feed_forward, width), (width, feed_forward)
    return [square, square, square, square, up, up, down]


def llama_parameters(layers: int, width: int, feed_forward: int, vocabulary: int = 32_000) -> int:
    """Return a LLaMA's parameters: matrices and two norms per layer, embedding, head, last norm."""
    layer = sum(map(math.prod, llama_matrices(width, feed_forward))) + 2 * width
    return layers * layer + 2 * vocabulary * width + width
