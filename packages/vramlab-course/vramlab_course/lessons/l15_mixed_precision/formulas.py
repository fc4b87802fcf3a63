"""What autocast saves of a chain of Linear layers, and from which batch size it saves less.

The program is a chain of Linear layers with float32 parameters and a float32 input:

    with torch.autocast("cuda", dtype=torch.float16):
        y = model(x)

autocast casts the input and, once each, every weight and bias; the casts of parameters are kept in
a cache until the outermost region ends. After that, the graph still holds the casts of those
weights that the backward pass reads: all but the first layer's, whose input needs no gradient.

Source: `cached_cast` and `linear` in aten/src/ATen/autocast_mode.cpp and .h; `linear_backward` in
tools/autograd/derivatives.yaml; PyTorch 2.13.
"""

from __future__ import annotations

from vramlab.cuda_rules.sizes import block_bytes, tensor_bytes
from vramlab_course.formulas.parameters import linear_chain, linear_chain_shapes

HALF = "float16"
"""bfloat16 takes as many bytes."""


def cast_bytes(widths: tuple[int, ...], bias: bool = True, *, inside: bool = True) -> int:
    """Return the casts of parameters that are alive after the forward pass, as blocks.

    Args:
        widths: of the input and of each layer's output.
        bias: whether the layers have one.
        inside: still within the autocast region; otherwise after it, with the graph alive.
    """
    shapes = linear_chain_shapes(widths, bias)
    if not inside:
        shapes = linear_chain_shapes(widths, bias=False)[1:]
    return sum(block_bytes(tensor_bytes(shape, HALF)) for shape in shapes)


def autocast_forward_bytes(
    batch: int, widths: tuple[int, ...], bias: bool = True, *, inside: bool = True
) -> int:
    """Return what a forward pass under autocast adds to allocated memory, without workspaces.

    Args:
        batch: rows of the input, which is there before, in float32.
        widths: of the input and of each layer's output.
        bias: whether the layers have one.
        inside: measured within the region; otherwise after it.
    """
    activations_bytes = sum(block_bytes(tensor_bytes((batch, width), HALF)) for width in widths)
    return activations_bytes + cast_bytes(widths, bias, inside=inside)


def crossover_rows(widths: tuple[int, ...], bias: bool = True) -> int:
    """Return the smallest batch whose forward pass needs less memory with autocast.

    Each row saves 2 bytes per number of the outputs, and costs 2 for each of the input, which is
    cast. Each parameter costs 2. Inside the region, without the rounding to blocks.

    Raises:
        ValueError: the outputs together are not wider than the input, so it never takes less.
    """
    saved_by_row = sum(widths[1:]) - widths[0]
    if saved_by_row <= 0:
        raise ValueError(
            f"outputs of {sum(widths[1:])} numbers a row save no more than the cast of an input "
            f"of {widths[0]} costs: autocast never takes less here"
        )
    return linear_chain(widths, bias) // saved_by_row + 1


STATES_PER_PARAMETER = {
    "float32": {"weights": 4, "gradients": 4, "AdamW": 8},
    "autocast": {"weights": 4, "gradients": 4, "AdamW": 8},
    "16 bit": {"weights": 2, "gradients": 2, "AdamW": 4},
    "16 bit, float32 copies": {"weights": 2, "gradients": 2, "copies": 4, "AdamW": 8},
}
"""Bytes that stay for each parameter after a step, gradients included, by mode.

Autocast's casts are not among them: they are there from the forward pass to the end of the backward
pass. Document 003's "6 bytes per parameter" counts them with the weights.
"""
