"""AdamW with states of 8 bits: the course's own, written to be read.

After arXiv 2110.02861 (8-bit Optimizers via Block-wise Quantization): a state is cut into blocks,
each is divided by its largest number, and what is then between -1 and 1 is kept as the number, out
of 256, of the nearest value in a *codebook* (§2, dynamic quantization). Kept are one byte for each
number and one float32 for each block.

Unlike the paper's, it is ordinary PyTorch ops, one parameter after the other, piece by piece; the
library of the paper's authors, bitsandbytes, has kernels that do the same in one go.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

from vramlab_course.programs.each_parameter import EachParameter

BLOCK = 256
"""Numbers that share a scale: bitsandbytes' block for optimizers today. The paper has 2048."""
SMALLEST = 4096
"""Parameters of fewer elements keep float32 states, as in bitsandbytes (min_8bit_size)."""
PIECE = 2**24
"""Elements that are worked on at a time, so that a large parameter needs no large temporaries."""


def codebook(signed: bool, device: torch.device | str | None = None) -> Tensor:
    """Return the 256 values that a byte stands for, ascending, 1 the largest.

    Dynamic quantization: for each power of ten from 1 down to 1e-6, values spread evenly over a
    decade, half as many for each power less. So a small number is kept as well as a large one, in
    proportion. Unsigned, for what is never negative, there are twice as many for each power.
    """
    positive: list[float] = []
    for power in range(7):
        count = 2 ** ((6 if signed else 7) - power)
        width = 0.9 / count
        positive += [10.0**-power * (0.1 + width * (step + 0.5)) for step in range(count)]
    values = [0.0, 1.0, *positive]
    if signed:
        values += [-value for value in positive]
    return torch.tensor(sorted(values), device=device)


def quantize(values: Tensor, code: Tensor, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """Turn float32 (n,) into bytes (n,) and one scale for each block.

    The last block may be shorter.
    """
    count = values.numel()
    filled = torch.nn.functional.pad(values, (0, -count % block)).view(-1, block)
    scales = filled.abs().amax(dim=1)
    filled = filled / scales.clamp(min=torch.finfo(torch.float32).tiny)[:, None]
    borders = (code[1:] + code[:-1]) / 2  # halfway from one value to the next
    numbers = torch.bucketize(filled, borders, out_int32=True).to(torch.uint8)
    return numbers.flatten()[:count], scales


def dequantize(numbers: Tensor, scales: Tensor, code: Tensor, block: int = BLOCK) -> Tensor:
    """Turn bytes (n,) and scales back into float32 (n,)."""
    values = code.index_select(0, numbers.to(torch.int32))
    count = numbers.numel()
    filled = torch.nn.functional.pad(values, (0, -count % block)).view(-1, block)
    return (filled * scales[:, None]).flatten()[:count]


class BlockwiseAdamW(EachParameter):
    """AdamW whose two states take a byte for each number.

    Args:
        params: parameters in float32, or groups of them.
        lr, betas, eps, weight_decay: as torch.optim.AdamW's.
        block: numbers that share a scale.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        block: int = BLOCK,
    ) -> None:
        if PIECE % block:
            raise ValueError(f"a block has a power of two of numbers, up to {PIECE}, not {block}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "decay": weight_decay})
        self.block = block
        self._codes: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = 0
            state["first"] = self._zeros(parameter, signed=True)
            state["second"] = self._zeros(parameter, signed=False)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        correction1 = 1 - beta1 ** state["step"]
        correction2 = 1 - beta2 ** state["step"]
        assert parameter.grad is not None  # `step` has looked
        weights, gradients = parameter.view(-1), parameter.grad.reshape(-1)
        for piece in _pieces(parameter.numel()):
            weight, gradient = weights[piece], gradients[piece]
            first = self._read(state["first"], piece, signed=True)
            second = self._read(state["second"], piece, signed=False)
            first.lerp_(gradient, 1 - beta1)
            second.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
            self._write(state["first"], piece, first, signed=True)
            self._write(state["second"], piece, second, signed=False)
            size = second.sqrt_().div_(correction2**0.5).add_(group["eps"])
            weight.mul_(1 - group["lr"] * group["decay"])
            weight.addcdiv_(first, size, value=-group["lr"] / correction1)

    def _zeros(self, parameter: Tensor, signed: bool) -> tuple[Tensor, ...]:
        """Return an empty state: bytes and scales, or float32 numbers for a small parameter."""
        count = parameter.numel()
        if count < SMALLEST:
            return (parameter.new_zeros(count),)
        zero = int((self._code(parameter.device, signed) < 0).sum()) if signed else 0
        return (
            parameter.new_full((count,), zero, dtype=torch.uint8),
            parameter.new_zeros(-(-count // self.block)),
        )

    def _read(self, state: tuple[Tensor, ...], piece: slice, signed: bool) -> Tensor:
        if len(state) == 1:
            return state[0][piece].clone()
        numbers, scales = state
        code = self._code(numbers.device, signed)
        return dequantize(numbers[piece], scales[self._blocks(piece)], code, self.block)

    def _write(self, state: tuple[Tensor, ...], piece: slice, values: Tensor, signed: bool) -> None:
        if len(state) == 1:
            state[0][piece] = values
            return
        numbers, scales = state
        new_numbers, new_scales = quantize(values, self._code(numbers.device, signed), self.block)
        numbers[piece] = new_numbers
        scales[self._blocks(piece)] = new_scales

    def _blocks(self, piece: slice) -> slice:
        return slice(piece.start // self.block, -(-piece.stop // self.block))

    def _code(self, device: torch.device, signed: bool) -> Tensor:
        if device not in self._codes:
            self._codes[device] = codebook(False, device), codebook(True, device)
        return self._codes[device][signed]


def _pieces(count: int) -> Iterator[slice]:
    for start in range(0, count, PIECE):
        yield slice(start, min(start + PIECE, count))
