"""Rules of convolutions that PyTorch computes itself, by products of matrices.

The columns of one image are multiplied with the filters. Channels in groups are convolved group by
group, and their results put together.

Source: `convolution` and `convolution_backward` in aten/src/ATen/native/Convolution.cpp, and
ConvolutionMM2d.cu, NaiveDilatedConvolution.cu, NaiveConvolutionTranspose2d.cu and -3d.cu in
aten/src/ATen/native/cuda, PyTorch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from vramlab.kernels.reductions import reduction_steps
from vramlab.kernels.rule_table.operands import contiguous, nbytes
from vramlab.kernels.rule_table.registry import CUBLAS, OUTPUTS, Call, Give, Output, Step, Take

_COLUMNS, _ONES, _BEFORE = "columns", "ones", "output before it grows"
_GRADIENT, _PART = "the gradient", "a group's channels"


@dataclass(frozen=True)
class SlowConvolution:
    """One convolution.

    Attributes:
        call: of the op.
        input: (N, C, ...).
        weight: the filters.
        output: what is computed, or its gradient.
        stride: of each spatial dimension, or one for all; as are the next.
        padding: of both sides, by dimension.
        dilation: by dimension.
        transposed: whether it is a transposed convolution.
        groups: of channels.
    """

    call: Call
    input: Tensor
    weight: Tensor
    output: Tensor
    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    groups: int

    def forward(self, has_bias: bool) -> Iterator[Step]:
        """Yield what the output takes."""
        if self.groups == 1:
            yield from self._forward_of(self.input, has_bias, None)
            return
        (part,) = self._parts(self.input)
        output_bytes = nbytes(self.output) // self.groups
        for _group in range(self.groups):
            yield from contiguous(part, _PART)
            yield from self._forward_of(part, has_bias, output_bytes)
            yield Give(f"contiguous copy of {_PART}")
        yield OUTPUTS

    def backward(self, bias_bytes: int | None, output_mask: Sequence[bool]) -> Iterator[Step]:
        """Yield what gradients take: of input, weight, and a bias of so many bytes."""
        sizes = (nbytes(self.input), nbytes(self.weight), bias_bytes or 0)
        wanted = [index for index in range(3) if output_mask[index]]
        yield from contiguous(self.weight, "the weight")
        if self.groups == 1:
            made: dict[int, Step] = {index: Output(index) for index in wanted}
            yield from self._backward_of(self.output, made)
            return
        gradient, part = self._parts(self.output, self.input)
        of_group: dict[int, Step] = {
            index: Take(sizes[index] // self.groups, "gradient of a group") for index in wanted
        }
        for _group in range(self.groups):
            yield from contiguous(gradient, "a group's gradient")
            yield from contiguous(part, _PART)
            dense = torch.empty(gradient.shape, dtype=gradient.dtype, device="meta")
            yield from self._backward_of(dense, of_group)
            yield Give(f"contiguous copy of {_PART}")
            yield Give("contiguous copy of a group's gradient")
        yield OUTPUTS

    def _parts(self, *tensors: Tensor) -> Iterator[Tensor]:
        """Yield the channels of one group."""
        return (each.narrow(1, 0, each.size(1) // self.groups) for each in tensors)

    def _forward_of(
        self, input: Tensor, has_bias: bool, output_bytes: int | None
    ) -> Iterator[Step]:
        """Yield an output, of so many bytes for a group; else it is the op's."""
        size_bytes = nbytes(self.output) if output_bytes is None else output_bytes
        least_bytes = nbytes(input) if self.transposed and self.weight.dim() == 5 else 0
        if least_bytes < size_bytes:  # it begins as large as the input
            yield Take(least_bytes, _BEFORE)
        is_larger = least_bytes > size_bytes
        if output_bytes is not None:
            yield Take(max(size_bytes, least_bytes), "output of a group")
        else:
            yield Output(0, storage_bytes=least_bytes if is_larger else None)
        yield Give(_BEFORE)
        yield from contiguous(self.weight, "the weight")
        yield from self._columns(self.transposed or self.weight.dim() == 5)
        if self.transposed and has_bias:
            yield Take(self._spatial(self.output) * self.weight.element_size(), _ONES)
        yield CUBLAS
        yield Give(_ONES)
        yield Give(_COLUMNS)

    def _backward_of(self, gradient: Tensor, made: Mapping[int, Step]) -> Iterator[Step]:
        """Yield gradients, of which each is made by a step."""
        if self.transposed:
            yield from self._backward_of_transposed(gradient, made)
        elif self.weight.dim() == 5 or any(each != 1 for each in self.dilation):
            yield from contiguous(gradient, _GRADIENT)
            yield from (made[index] for index in (0, 1, 2) if index in made)
            yield from self._columns(True)
            yield CUBLAS
            if 2 in made:
                yield from self._bias_of_each_image(gradient)
        else:
            yield from contiguous(gradient, _GRADIENT)
            if 0 in made:
                yield made[0]
                yield from self._columns(True)
            if 2 in made:
                yield made[2]
                yield from self._bias(gradient)
            if 1 in made:
                yield made[1]
                if 0 not in made:
                    yield from self._columns(False)
            yield CUBLAS
        yield Give(_COLUMNS)
        yield Give(f"contiguous copy of {_GRADIENT}")

    def _backward_of_transposed(self, gradient: Tensor, made: Mapping[int, Step]) -> Iterator[Step]:
        """Yield the gradient of the input, and then of weight and bias, each by itself."""
        for indices in ((0,), (1, 2)):
            there = [index for index in indices if index in made]
            if not there:
                continue
            if indices == (0,):
                yield from contiguous(gradient, _GRADIENT)
                yield made[0]
            else:
                yield from (made[index] for index in there)
                yield from contiguous(gradient, _GRADIENT)
            yield from self._columns(False)
            yield CUBLAS
            if 2 in there:
                yield from self._bias(gradient)
            yield Give(_COLUMNS)
            yield Give(f"contiguous copy of {_GRADIENT}")

    def _columns(self, always: bool) -> Iterator[Step]:
        """Yield the columns of one image; of filters of one number they are the image itself."""
        steps = (*self.weight.shape[2:], *self.stride, *self.dilation)
        by_columns = any(each != 1 for each in steps) or any(self.padding)
        if always or by_columns:
            across = self._spatial(self.input if self.transposed else self.output)
            of_filter = self.weight.numel() // self.weight.size(0)
            yield Take(of_filter * across * self.weight.element_size(), _COLUMNS)

    def _bias(self, gradient: Tensor) -> Iterator[Step]:
        """Yield what the sum of a contiguous gradient takes."""
        yield from self._sum(gradient.shape, 1)

    def _bias_of_each_image(self, gradient: Tensor) -> Iterator[Step]:
        for _image in range(gradient.size(0)):
            yield Take(gradient.size(1) * gradient.element_size(), "bias of an image")
            yield from self._sum(gradient.shape[1:], 0)
            yield Give("bias of an image")

    def _sum(self, shape: Sequence[int], channels: int) -> Iterator[Step]:
        """Yield what a sum takes over all dimensions but that of channels."""
        dtype = self.output.dtype
        dense = torch.empty(tuple(shape), dtype=dtype, device="meta")
        result = torch.empty(shape[channels], dtype=dtype, device="meta")
        dims = [dim for dim in range(len(shape)) if dim != channels]
        partial_bytes = 4 if dtype.itemsize < 8 else 8
        return reduction_steps(self.call.context, dense, [result], dims, partial_bytes, dtype)

    @staticmethod
    def _spatial(tensor: Tensor) -> int:
        return tensor.shape[2:].numel()
