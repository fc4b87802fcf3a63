"""Linear layers whose weights have 4 or 8 bits, and are computed with in 16: weight-only.

Neighbours in a row share a scale, so that one large number spoils few others (GPTQ, arXiv
2210.17323 §4, "grouping"). Values are rounded to the nearest; better ways choose them by data.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad


def quantize(weight: Tensor, bits: int = 4, group: int = 128) -> tuple[Tensor, Tensor]:
    """Round a matrix to a few bits.

    Args:
        weight: (rows, columns); an even number of columns.
        bits: 4 or 8.
        group: neighbours in a row that share a scale.

    Returns:
        Its numbers as uint8, with 4 bits two in a byte; and scales (rows, groups) in float16.
    """
    rows, columns = weight.shape
    largest = 2 ** (bits - 1) - 1
    groups = pad(weight, (0, -columns % group)).reshape(rows, -1, group)
    scales = (groups.abs().amax(-1) / largest).clamp(min=2.0**-14)  # float16's smallest normal one
    numbers = (groups / scales[..., None]).round().reshape(rows, -1)[:, :columns]
    unsigned = (numbers + 2 ** (bits - 1)).to(torch.uint8)
    if bits == 4:
        unsigned = unsigned[:, ::2] | unsigned[:, 1::2] << 4
    return unsigned.contiguous(), scales.half()


def dequantize(numbers: Tensor, scales: Tensor, bits: int = 4, group: int = 128) -> Tensor:
    """Return the matrix in float16 that `quantize` has rounded."""
    if bits == 4:
        numbers = torch.stack((numbers & 15, numbers >> 4), dim=-1).flatten(1)
    weight = numbers.half().sub_(2 ** (bits - 1))
    return weight.mul_(scales.repeat_interleave(group, dim=1)[:, : weight.shape[1]])


class WeightOnlyLinear(nn.Module):
    """A Linear layer without bias that keeps its weight in few bits.

    It computes the weight in float16 again each time. Kernels of servers do that tile by tile, and
    never have all of it.

    Args:
        weight: (rows, columns).
        bits: 4 or 8.
        group: neighbours in a row that share a scale.
    """

    numbers: Tensor
    scales: Tensor

    def __init__(self, weight: Tensor, bits: int = 4, group: int = 128) -> None:
        super().__init__()
        self.bits, self.group = bits, group
        numbers, scales = quantize(weight, bits, group)
        self.register_buffer("numbers", numbers)
        self.register_buffer("scales", scales)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply with the weight."""
        return linear(x, dequantize(self.numbers, self.scales, self.bits, self.group))
