"""Activations: what a forward pass saves for the backward pass.

Source: 001 §2.23 and 003: the outputs of the layers, except those that are not needed. A
layer keeps what its backward pass reads (tools/autograd/derivatives.yaml): Linear its input, ReLU
its output, which is usually the next layer's input and counts once.
"""

from __future__ import annotations

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes


def linear_chain_bytes(batch: int, widths: tuple[int, ...], dtype: str = "float32") -> int:
    """Return what a chain of Linear layers adds to allocated memory while its output is alive.

    Every layer keeps its input, which is the output of the layer before, and the caller holds the
    last output: the sum of all outputs. The chain's own input was there before.

    Args:
        batch: rows of the input (batch, widths[0]).
        widths: of the input and of each layer's output (batch, width).
        dtype: of the activations.
    """
    return sum(block_bytes(tensor_bytes((batch, width), dtype)) for width in widths[1:])


def repeated_linear_bytes(batch: int, width: int, applications: int, dtype: str = "float16") -> int:
    """Return the bytes saved for backward by one Linear(width, width) applied several times."""
    return linear_chain_bytes(batch, (width,) * (applications + 1), dtype)
