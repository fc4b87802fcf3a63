"""Linear layers that multiply in 8 bits: the course's own, written to be read.

A number of 8 bits reaches over few powers of two, so a matrix is divided by a scale before it is
cast, and the product multiplied by both scales. Layers of three libraries do the same with more
care: `Float8Linear` of torchao and of torchtitan casts again in the backward pass (keep=
"given"); Transformer Engine keeps the casts (keep="casts").

Source: arXiv 2209.05433 §3 (E4M3 for weights and activations, E5M2 for gradients; a scale for each
tensor); arXiv 2310.10537, algorithm 1 (blocks of 32 with powers of two).
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn

E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2
SCALES = torch.float8_e8m0fnu
"""Powers of two alone, in a byte."""
BLOCK = 32
"""Numbers that share a scale in MX formats."""

Keep = Literal["given", "casts"]


def cast(
    values: Tensor, dtype: torch.dtype = E4M3, dim: int | None = None
) -> tuple[Tensor, Tensor]:
    """Divide by a scale, so that the largest number becomes the format's largest, and cast.

    Args:
        values: a tensor of floats.
        dtype: of 8 bits.
        dim: one scale for each slice along it, such as -1 for rows; by default one for all.

    Returns:
        The cast, and its float32 scale, which it is to be multiplied by.
    """
    largest = torch.finfo(dtype).max
    if dim is None:
        amax = values.abs().amax().float()
    else:
        amax = values.abs().amax(dim, keepdim=True).float()
    scale = (amax / largest).clamp(min=torch.finfo(torch.float32).tiny)
    return (values / scale).clamp(-largest, largest).to(dtype), scale


def cast_blocks(values: Tensor, dtype: torch.dtype = E4M3) -> tuple[Tensor, Tensor]:
    """Cast a matrix with a power of two for each 32 neighbours in a row, as MX formats do.

    Args:
        values: (rows, columns), with columns a multiple of 32.
        dtype: of 8 bits.

    Returns:
        The cast, and its scales of a byte each, (rows, columns / 32), not laid out in tiles.
    """
    largest = torch.finfo(dtype).max
    blocks = values.unflatten(-1, (-1, BLOCK)).float()
    _, power = torch.frexp(blocks.abs().amax(-1, keepdim=True))
    _, most = torch.frexp(torch.tensor(largest))
    scale = torch.ldexp(torch.ones_like(power, dtype=torch.float32), power - int(most))
    numbers = (blocks / scale).clamp(-largest, largest).to(dtype)
    return numbers.flatten(-2), scale.squeeze(-1).to(SCALES)


def restore(numbers: Tensor, scale: Tensor) -> Tensor:
    """Turn a cast and its scale, of any of the kinds above, back into float32."""
    if scale.dtype != SCALES:
        return numbers.float() * scale
    blocks: Tensor = numbers.float().unflatten(-1, (-1, BLOCK))
    return (blocks * scale.float()[..., None]).flatten(-2)


def binades(values: Tensor) -> dict[int, int]:
    """Count numbers by their power of two: 3 is in 2**1. Zeros are not among them."""
    _, powers = torch.frexp(values.detach().flatten().float().cpu())
    powers = powers[values.detach().flatten().cpu() != 0] - 1
    found, counts = torch.unique(powers, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def _product(
    left: tuple[Tensor, Tensor], right: tuple[Tensor, Tensor], dtype: torch.dtype
) -> Tensor:
    """Multiply two casts. The units read `left` by rows and `right` by columns, and nothing else.

    Where one lies otherwise, a copy is made that does not.
    """
    numbers, scale = left
    others, other_scale = right
    columns = others.t().contiguous().t()
    return torch._scaled_mm(numbers.contiguous(), columns, scale, other_scale, out_dtype=dtype)


class _Multiply(torch.autograd.Function):
    """input @ weight.T in 8 bits, and both gradients."""

    @staticmethod
    def forward(ctx: Any, given: Tensor, weight: Tensor, keep: Keep) -> Tensor:
        rows = given.flatten(0, -2)
        number, other = cast(rows), cast(weight)
        ctx.keep, ctx.weight_dtype = keep, weight.dtype
        if keep == "casts":
            ctx.save_for_backward(*number, *other)
        else:
            ctx.save_for_backward(given, weight)
        product = _product(number, (other[0].t(), other[1]), given.dtype)
        return product.view(*given.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (gradient,) = gradients
        if ctx.keep == "casts":
            numbers, scale, others, other_scale = ctx.saved_tensors
            number, other = (numbers, scale), (others, other_scale)
        else:
            given, weight = ctx.saved_tensors
            number, other = cast(given.flatten(0, -2)), cast(weight)
        rows, rows_scale = cast(gradient.flatten(0, -2), E5M2)
        of_input = of_weight = None
        if ctx.needs_input_grad[0]:
            of_input = _product((rows, rows_scale), other, gradient.dtype)
            of_input = of_input.view(*gradient.shape[:-1], -1)
        if ctx.needs_input_grad[1]:
            of_weight = _product((rows.t(), rows_scale), number, ctx.weight_dtype)
        return of_input, of_weight, None


class EightBitLinear(nn.Module):
    """A Linear layer without bias whose three products are in 8 bits.

    Args:
        inputs: numbers in a row that comes in; a multiple of 16, as the rows together have to be.
        outputs: numbers in a row that goes out.
        keep: for the backward pass, what was "given", to be cast again, or the "casts".
        dtype: of the weight.
    """

    def __init__(
        self, inputs: int, outputs: int, keep: Keep = "given", dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.weight = nn.Linear(inputs, outputs, bias=False, dtype=dtype).weight
        self.keep = keep

    def forward(self, rows: Tensor) -> Tensor:
        """Multiply rows of 16-bit numbers with the weight."""
        product: Tensor = _Multiply.apply(rows, self.weight, self.keep)  # type: ignore[no-untyped-call]
        return product
