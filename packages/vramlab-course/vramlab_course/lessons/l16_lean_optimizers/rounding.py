"""Rounding to bfloat16 so that small changes are not lost, on average."""

from __future__ import annotations

import torch
from torch import Tensor

_CUT_BITS = 16
"""bfloat16 is the upper half of a float32."""


def round_stochastically(values: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Round float32 to bfloat16, up or down by chance: up as often as the rest is large.

    So the mean of many roundings is the number itself, where rounding to the nearest always gives
    the same neighbour. Infinities and nan are not looked at.

    Args:
        values: float32, of any shape.
        generator: of random numbers, on the device of the values.
    """
    bits = values.view(torch.int32)
    chance = torch.randint(
        0, 2**_CUT_BITS, values.shape, generator=generator, dtype=torch.int32, device=values.device
    )
    cut: Tensor = (bits + chance) & -(2**_CUT_BITS)
    return cut.view(torch.float32).to(torch.bfloat16)
