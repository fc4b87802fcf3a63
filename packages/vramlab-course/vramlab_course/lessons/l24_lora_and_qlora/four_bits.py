"""Weights of 4 bits: NF4 and double quantization, the course's own, written to be read.

After arXiv 2305.14314 (QLoRA, §3): a weight is cut into blocks of 64 numbers, each is divided by
its largest, the block's *scale*, and what is then between -1 and 1 is kept as the number, out of
16, of the nearest value of NF4. Two such numbers share a byte.

What is kept takes as much as with bitsandbytes, the library of the paper's authors. It is ordinary
PyTorch ops, piece by piece; bitsandbytes has a CUDA kernel that turns a weight back in one go.
"""

from __future__ import annotations

from functools import cache
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK = 64
"""Numbers that share a scale (§4)."""
SCALES_BLOCK = 256
"""Scales that share a scale of their own (§3, double quantization)."""
PIECE = 2**22
"""Bytes that are dequantized at a time, so that a large weight needs no large temporaries."""


@cache
def nf4_values() -> tuple[float, ...]:
    """Return NF4's 16 values, ascending: quantiles of a normal distribution, 0 and 1 among them.

    Eight above 0 and seven below, evenly spread in probability (§3 and appendix E; the outermost
    probability is that of `create_normal_map` in bitsandbytes/functional.py).
    """
    outermost = 1 - (1 / 30 + 1 / 32) / 2
    above, below = (
        [_quantile(outermost, part, count) for part in range(count)] for count in (8, 7)
    )
    values = sorted([*above, 0.0, *(-value for value in below)])
    return tuple(value / values[-1] for value in values)


def _quantile(outermost: float, part: int, count: int) -> float:
    """One of `count` quantiles, evenly spread from the outermost probability to a half."""
    return NormalDist().inv_cdf(outermost + (0.5 - outermost) * part / count)


def quantize(weight: Tensor, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """Turn a weight into bytes, two numbers each, and one float32 scale for each block.

    Raises:
        ValueError: the weight cannot be cut into blocks.
    """
    if block % 2 or weight.numel() % block:
        raise ValueError(f"{weight.numel():,} numbers cannot be cut into blocks of {block}")
    blocks = weight.detach().float().view(-1, block)
    scales = blocks.abs().amax(dim=1)
    blocks = blocks / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    values = torch.tensor(nf4_values(), device=weight.device)
    borders = (values[1:] + values[:-1]) / 2  # halfway from one value to the next
    numbers = torch.bucketize(blocks.flatten(), borders, out_int32=True).to(torch.uint8).view(-1, 2)
    return numbers[:, 0] * 16 + numbers[:, 1], scales


def dequantize(
    packed: Tensor, scales: Tensor, dtype: torch.dtype = torch.float32, block: int = BLOCK
) -> Tensor:
    """Turn bytes and scales back into numbers, in one dimension."""
    values = nf4_values()
    pairs = [(first, second) for first in values for second in values]  # that a byte stands for
    table = torch.tensor(pairs, dtype=dtype, device=packed.device)
    numbers = torch.empty(packed.numel(), 2, dtype=dtype, device=packed.device)
    for some, place in zip(packed.split(PIECE), numbers.split(PIECE), strict=True):
        place.copy_(table.index_select(0, some.to(torch.int32)))
    numbers.view(-1, block).mul_(scales[:, None])
    return numbers.view(-1)


def quantize_scales(scales: Tensor, block: int = SCALES_BLOCK) -> tuple[Tensor, Tensor, Tensor]:
    """Turn scales into bytes, a float32 for each block of them, and their mean.

    All scales are positive, so their mean is taken off first (§3).
    """
    mean = scales.mean()
    blocks = functional.pad(scales - mean, (0, -scales.numel() % block)).view(-1, block)
    largest = blocks.abs().amax(dim=1)
    steps = blocks / largest.clamp(min=torch.finfo(torch.float32).tiny)[:, None] * 127
    return steps.round().to(torch.int8).flatten()[: scales.numel()].clone(), largest, mean


def dequantize_scales(
    steps: Tensor, largest: Tensor, mean: Tensor, block: int = SCALES_BLOCK
) -> Tensor:
    """Turn scales of 8 bits back into float32."""
    each = largest.repeat_interleave(block)[: steps.numel()]
    return steps * each / 127 + mean


class FourBitLinear(nn.Module):
    """A frozen Linear layer without bias, whose weight is kept in 4 bits.

    Args:
        linear: whose weight it gets.
        double: whether scales take 8 bits, too.
        keeps_weight: let autograd save the dequantized weight for the backward pass, as it saves
            any factor of a product; otherwise it is dequantized again there.
    """

    def __init__(
        self, linear: nn.Linear, *, double: bool = True, keeps_weight: bool = False
    ) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.keeps_weight = keeps_weight
        packed, scales = quantize(linear.weight)
        self.register_buffer("packed", packed)
        kept = dict(zip(("steps", "largest", "mean"), quantize_scales(scales), strict=True))
        for name, tensor in kept.items() if double else [("scales", scales)]:
            self.register_buffer(name, tensor)
        self.short_scales = double

    def weight(self, dtype: torch.dtype) -> Tensor:
        """Turn the weight back: (outputs, inputs), for a moment."""
        parts = dict(self.named_buffers())
        if self.short_scales:
            scales = dequantize_scales(parts["steps"], parts["largest"], parts["mean"])
        else:
            scales = parts["scales"]
        return dequantize(parts["packed"], scales, dtype).view(self.out_features, self.in_features)

    def forward(self, x: Tensor) -> Tensor:
        if self.keeps_weight:
            return functional.linear(x, self.weight(x.dtype))
        product: Tensor = FourBitProduct.apply(x, self)  # type: ignore[no-untyped-call]
        return product


class FourBitProduct(torch.autograd.Function):
    """x times the weight of a `FourBitLinear`, which is dequantized twice and never saved."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, linear: FourBitLinear) -> Tensor:
        ctx.linear = linear
        return x @ linear.weight(x.dtype).T

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient @ ctx.linear.weight(gradient.dtype), None
