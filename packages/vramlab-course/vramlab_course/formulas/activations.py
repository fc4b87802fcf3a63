"""What a forward pass keeps on the GPU until the backward pass.

Source: document 001 §2.23 and document 003: the outputs of the layers, less what nobody needs. A
layer keeps what its backward pass reads (tools/autograd/derivatives.yaml): Linear its input, ReLU
its output, which mostly is the next layer's input and counts once.
"""

from __future__ import annotations

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes


def linear_chain_bytes(batch: int, widths: tuple[int, ...], dtype: str = "float32") -> int:
    """Size what a chain of Linear layers adds to allocated memory, if somebody holds its output.

    Every layer keeps its input, which is the output of the layer before, and the caller holds the
    last output: the sum of all outputs. The chain's own input was there before.

    Args:
        batch: rows of the input (batch, widths[0]).
        widths: of the input and of each layer's output (batch, width).
        dtype: of the activations.
    """
    return sum(block_bytes(tensor_bytes((batch, width), dtype)) for width in widths[1:])


def repeated_linear_bytes(batch: int, width: int, applications: int, dtype: str = "float16") -> int:
    """Add up what one Linear(width, width) keeps that is applied several times (document 003)."""
    return linear_chain_bytes(batch, (width,) * (applications + 1), dtype)
