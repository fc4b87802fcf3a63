"""Training with 8-bit matrix products: saved copies of matrices and their scales.

A copy in 8 bits is a byte for each number, and scales: one float32 for a whole matrix, one for each
row, or, in MX formats, a byte for each 32 numbers of a row (E8M0: a power of two). The kernels of
compute capability 10.0 want MX scales in tiles of 128 rows by 4 blocks, filled up.

The tables of both papers were compared with other people's code: the ranges of E4M3 and E5M2
against the README of IntelLabs/FP8-Emulation-Toolkit; blocks, scales and formats of MX against
mx/formats.py and mx/mx_ops.py of microsoft/microxcaling (7bc4195), by authors of the second.

Source: arXiv 2209.05433 (scales of tensors), arXiv 2310.10537 (MX: w + kd bits for k numbers of d
bits and a scale of w); `_check_scaled_mm_sizes` in torch/_meta_registrations.py, PyTorch 2.13 (rows
and tiles); vramlab_course/lessons/l28_eight_bits_and_fewer/eight_bits.py (the layers).
"""

from __future__ import annotations

from typing import Literal

from vramlab.cuda_rules.rounding import ceil_div
from vramlab.cuda_rules.sizes import block_bytes

Scaling = Literal["tensor", "rows", "blocks"]
"""Who shares a scale: all numbers of a matrix, those of a row, 32 neighbours in a row."""

Recipe = Literal["16 bits", "8 bits, cast again", "8 bits, kept"]
"""How Linear layers multiply, and what they keep: bfloat16 under autocast; 8 bits, with what they
were given kept as it is, and cast again in the backward pass; 8 bits, with the casts kept."""

FLOAT_SCALE_BYTES = 4
MX_BLOCK = 32
_TILE_ROWS, _TILE_BLOCKS = 128, 4


def scales_bytes(rows: int, columns: int, scaling: Scaling) -> int:
    """Return the bytes of a matrix's scales, one after another along its rows."""
    if scaling == "tensor":
        return FLOAT_SCALE_BYTES
    if scaling == "rows":
        return FLOAT_SCALE_BYTES * rows
    tall = ceil_div(rows, _TILE_ROWS) * _TILE_ROWS
    wide = ceil_div(ceil_div(columns, MX_BLOCK), _TILE_BLOCKS) * _TILE_BLOCKS
    return tall * wide


def copy_bytes(rows: int, columns: int, scaling: Scaling) -> int:
    """Return the bytes of a matrix in 8 bits, with its scales."""
    return rows * columns + scales_bytes(rows, columns, scaling)


def linear_kept_bytes(
    rows: int, inputs: int, outputs: int, recipe: Recipe, readers: int = 1
) -> int:
    """Return what Linear layers without bias save that read the same bfloat16 input, as blocks.

    The weights are parameters in float32, and the input counts, for these layers keep it. In 8
    bits each layer makes a cast of its own.

    Args:
        rows: of the input.
        inputs: of each layer, and numbers in a row.
        outputs: of each layer.
        recipe: how they multiply.
        readers: how many layers read it.
    """
    given_bytes = block_bytes(2 * rows * inputs)
    if recipe == "8 bits, cast again":
        return given_bytes
    if recipe == "16 bits":
        return given_bytes + readers * block_bytes(2 * inputs * outputs)
    casts = block_bytes(rows * inputs), block_bytes(inputs * outputs)
    return readers * (sum(casts) + 2 * block_bytes(FLOAT_SCALE_BYTES))


def gelu_chain_bytes(rows: int, width: int, layers: int, recipe: Recipe) -> int:
    """Return what a chain of Linear layers and GELUs saves for backward, as blocks.

    Each GELU keeps its own input, in bfloat16. The chain's input counts where a layer keeps it.
    """
    of_gelu = block_bytes(2 * rows * width)
    return layers * (linear_kept_bytes(rows, width, width, recipe) + of_gelu)


FP8_LM_STATES = {"weights": 2, "gradients": 1, "AdamW": 3, "casts": 1}
"""Bytes for each parameter between a forward and a backward pass, as soon as gradients are there.

FP8-LM (arXiv 2310.18313) has weights in float16, gradients and first moments in 8 bits, and second
moments in float16, each with a scale for the whole tensor: 6 bytes, of which its authors' library
says the same (level O2 in docs/user-tutorial/optimization-level.md of Azure/MS-AMP, 9746ea8, and
the dtypes in msamp/optim/adamw.py). The seventh is the weight's cast, which their Linear layer
keeps for its backward pass (msamp/nn/functional.py). Biases and norms stay in float32 there; they
are few, and not counted. What the paper's own tables print was not looked up.
"""
