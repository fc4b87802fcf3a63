"""TensorIterator's view of a reduction: dimensions sorted, merged, cut into 32-bit pieces.

CUDA's reduction kernel chooses its launch by the iterator's dimensions, not by the tensor's, so the
rules need the same ones. Strides are in bytes, dimension 0 is the fastest, and an output has stride
0 along every dimension that is reduced.

Source: aten/src/ATen/TensorIterator.cpp, PyTorch 2.13.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_INT32_MAX = 2**31 - 1


@dataclass
class Reduction:
    """A reduction as its kernel sees it.

    Attributes:
        shape: dimension 0 is the fastest; the reduced dimensions come first.
        output_strides: of each output, in bytes.
        input_strides: of the input, in bytes.
        input_offset: the input's first byte, from the start of its storage.
    """

    shape: list[int]
    output_strides: list[list[int]]
    input_strides: list[int]
    input_offset: int

    @classmethod
    def of(
        cls,
        shape: Sequence[int],
        outputs: Sequence[Sequence[int]],
        input_strides: Sequence[int],
        input_offset: int,
    ) -> Reduction:
        """Build one as `TensorIterator::reduce_op` does.

        Args:
            shape: the input's.
            outputs: per output, its strides in bytes along the input's dimensions, 0 where reduced.
            input_strides: the input's, in bytes.
            input_offset: the input's first byte, from the start of its storage.
        """
        order = _dimension_order(shape, [*outputs, input_strides], len(outputs))
        built = cls(
            [shape[dim] for dim in order],
            [[strides[dim] for dim in order] for strides in outputs],
            [input_strides[dim] for dim in order],
            input_offset,
        )
        built._merge_dimensions()
        return built

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def reduced_dims(self) -> int:
        """Count the dimensions that are reduced; they are the first ones."""
        return sum(stride == 0 for stride in self.output_strides[0])

    @property
    def output_numel(self) -> int:
        """Count the different outputs."""
        return math.prod(
            size
            for size, stride in zip(self.shape, self.output_strides[0], strict=True)
            if stride != 0
        )

    def pieces(self) -> Iterator[Reduction]:
        """Yield the parts whose offsets fit 32 bits, in the order in which they are run."""
        waiting = [self]
        while waiting:
            piece = waiting.pop()
            while not piece.fits_32_bits():
                first, rest = piece._halves()
                waiting.append(rest)
                piece = first
            yield piece

    def fits_32_bits(self) -> bool:
        """Return whether one kernel can run it, its offsets in bytes being 32-bit numbers."""
        if self.numel > _INT32_MAX:
            return False
        return all(
            1 + sum((size - 1) * stride for size, stride in zip(self.shape, strides, strict=True))
            <= _INT32_MAX
            for strides in (*self.output_strides, self.input_strides)
        )

    def _halves(self) -> tuple[Reduction, Reduction]:
        """Cut along the dimension that reaches furthest, the smaller half first."""
        all_strides = (*self.output_strides, self.input_strides)
        dim = max(
            reversed(range(len(self.shape))),
            key=lambda dim: max((self.shape[dim] - 1) * strides[dim] for strides in all_strides),
        )
        first_size = self.shape[dim] // 2
        first, rest = (
            Reduction(
                [*self.shape[:dim], size, *self.shape[dim + 1 :]],
                self.output_strides,
                self.input_strides,
                self.input_offset + start * self.input_strides[dim],
            )
            for start, size in ((0, first_size), (first_size, self.shape[dim] - first_size))
        )
        return first, rest

    def _merge_dimensions(self) -> None:
        """Join neighbours that every operand steps through as one (coalesce_dimensions)."""
        all_strides = (*self.output_strides, self.input_strides)
        last = 0
        for dim in range(1, len(self.shape)):
            joined = (
                self.shape[last] == 1
                or self.shape[dim] == 1
                or all(self.shape[last] * s[last] == s[dim] for s in all_strides)
            )
            if joined:
                if self.shape[last] == 1:
                    for strides in all_strides:
                        strides[last] = strides[dim]
                self.shape[last] *= self.shape[dim]
            else:
                last += 1
                for strides in all_strides:
                    strides[last] = strides[dim]
                self.shape[last] = self.shape[dim]
        for per_dimension in (self.shape, *all_strides):
            del per_dimension[last + 1 :]


def _dimension_order(
    shape: Sequence[int], operands: Sequence[Sequence[int]], output_count: int
) -> list[int]:
    """Sort dimensions: reduced ones first, then by stride (reorder_dimensions).

    An insertion sort, as there, because the comparison is not a total order: operands that do not
    step along a dimension have no say in it.
    """

    def compare(dim0: int, dim1: int) -> int:
        for at, strides in enumerate(operands):
            stride0, stride1 = strides[dim0], strides[dim1]
            if at < output_count and (stride0 == 0) != (stride1 == 0):
                return 1 if stride1 == 0 else -1
            if stride0 == 0 or stride1 == 0:
                continue
            if stride0 != stride1:
                return -1 if stride0 < stride1 else 1
            if shape[dim0] > shape[dim1]:
                return 1
        return 0

    order = list(reversed(range(len(shape))))
    for start in range(1, len(order)):
        at = start
        for before in range(start - 1, -1, -1):
            comparison = compare(order[before], order[at])
            if comparison > 0:
                order[before], order[at] = order[at], order[before]
                at = before
            elif comparison < 0:
                break
    return order
