"""Rules of interpolation, padding, and of windows: `unfold`, `im2col`, `roll`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor

from vramlab.kernels.copies import copies, copying, is_channels_last
from vramlab.kernels.rule_table.operands import contiguous, nbytes
from vramlab.kernels.rule_table.registry import (
    OUTPUTS,
    Call,
    Give,
    Output,
    Status,
    Step,
    Take,
    rule,
)

_CUDA = "aten/src/ATen/native/cuda"
_ENOUGH_CHANNELS = 4
"""From here on kernels of nearest and bilinear interpolation work in channels last."""

_ORDERS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "outputs, self",
        "UpSampleNearest1d.cu",
        ("aten.upsample_nearest1d.default", "aten._upsample_nearest_exact1d.default"),
    ),
    (
        "outputs, output 0, self",
        "UpSampleNearest3d.cu and UpSampleBilinear2d.cu",
        (
            "aten.upsample_nearest3d.default",
            "aten._upsample_nearest_exact3d.default",
            "aten._upsample_bilinear2d_aa.default",
            "aten._upsample_bicubic2d_aa.default",
        ),
    ),
    (
        "outputs, grad_output",
        "UpSample*.cu",
        (
            "aten.upsample_nearest1d_backward.default",
            "aten._upsample_nearest_exact1d_backward.default",
            "aten.upsample_nearest3d_backward.default",
            "aten._upsample_nearest_exact3d_backward.default",
            "aten.upsample_linear1d_backward.default",
            "aten.upsample_bicubic2d_backward.default",
            "aten._upsample_bilinear2d_aa_backward.default",
            "aten._upsample_bicubic2d_aa_backward.default",
        ),
    ),
    (
        "outputs, grad_output, output 0",
        "UpSampleTrilinear3d.cu",
        ("aten.upsample_trilinear3d_backward.default",),
    ),
    (
        "outputs",
        "UpSample*.cu",
        (
            "aten.upsample_linear1d.default",
            "aten.upsample_bilinear2d.default",
            "aten.upsample_bicubic2d.default",
            "aten.upsample_trilinear3d.default",
        ),
    ),
    (
        "outputs",
        "GridSampler.cpp",
        tuple(
            f"aten.grid_sampler_{rank}d{backward}.default"
            for rank in (2, 3)
            for backward in ("", "_backward")
        ),
    ),
    (
        "outputs, self",
        "ReflectionPad.cu",
        tuple(f"aten.reflection_pad{rank}d.default" for rank in (1, 2, 3)),
    ),
    (
        "outputs, grad_output",
        "ReflectionPad.cu",
        tuple(f"aten.reflection_pad{rank}d_backward.default" for rank in (1, 2)),
    ),
    (
        "outputs",
        "ReflectionPad.cu and ReplicationPadding.cu",
        (
            "aten.reflection_pad3d_backward.default",
            *(
                f"aten.replication_pad{rank}d{backward}.default"
                for rank in (1, 2, 3)
                for backward in ("", "_backward")
            ),
        ),
    ),
)

for _order, _file, _ops in _ORDERS:
    copying(*_ops, order=_order, source=f"{_CUDA}/{_file}, PyTorch 2.13")


@rule(
    "aten.upsample_nearest2d.default",
    "aten._upsample_nearest_exact2d.default",
    takes="a contiguous copy of an input that is not, unless the size stays; in channels last, "
    "of fewer than 4 channels, one of the output too",
    source=f"{_CUDA}/UpSampleNearest2d.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def nearest(
    call: Call, self: Tensor, output_size: Sequence[int], *_: object, **__: object
) -> Iterable[Step]:
    return copies(call, _of_images(self, "self", output_size == list(self.shape[2:])), (self,))


@rule(
    "aten.upsample_nearest2d_backward.default",
    "aten._upsample_nearest_exact2d_backward.default",
    "aten.upsample_bilinear2d_backward.default",
    takes="a contiguous copy of a gradient that is not, unless the size stays; in channels last, "
    "of fewer than 4 channels, one of the output too",
    source=f"{_CUDA}/UpSampleNearest2d.cu and UpSampleBilinear2d.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def nearest_backward(
    call: Call,
    grad_output: Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    *_: object,
    **__: object,
) -> Iterable[Step]:
    is_copied = list(grad_output.shape) == list(input_size)
    return copies(call, _of_images(grad_output, "grad_output", is_copied), (grad_output,))


def _of_images(tensor: Tensor, name: str, is_copied: bool) -> str:
    """Describe a kernel with a channels-last form, which it uses for enough channels."""
    if is_copied:
        return "outputs"
    if is_channels_last(tensor) and tensor.size(1) >= _ENOUGH_CHANNELS:
        return f"outputs, {name} as {name}"
    return f"outputs, output 0, {name}"


@rule(
    "aten.cudnn_grid_sampler.default",
    "aten.cudnn_grid_sampler_backward.default",
    takes="copies of an expanded input or gradient, and of a grid that is not contiguous",
    source="aten/src/ATen/native/cudnn/GridSampler.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def cudnn_grid_sampler(
    call: Call, self: Tensor, grid: Tensor, grad_output: Tensor | None = None
) -> Iterable[Step]:
    yield from _unless_expanded(self, "self")
    yield from contiguous(grid, "grid")
    if grad_output is not None:
        yield from _unless_expanded(grad_output, "grad_output")
    yield OUTPUTS


def _unless_expanded(tensor: Tensor, what: str) -> Iterator[Step]:
    """Yield the copy of a tensor that has a stride of 0 (`contiguousIfZeroInStrides`)."""
    if 0 in tensor.stride():
        yield Take(nbytes(tensor), f"contiguous copy of {what}")


def _first_made_like(call: Call, first: Tensor, name: str) -> Iterator[Step]:
    """Yield an output that begins as large as an operand, and grows where that is too small."""
    (output,) = call.outputs
    assert output is not None
    if nbytes(first) >= nbytes(output):
        yield Output(0, storage_bytes=nbytes(first))
        yield from contiguous(first, name)
        return
    yield Take(nbytes(first), "output before it grows")
    yield from contiguous(first, name)
    yield OUTPUTS
    yield Give("output before it grows")


@rule(
    "aten.im2col.default",
    "aten.col2im.default",
    takes="an output as large as the input, which grows if that is too small; a contiguous copy "
    "of an input that is not",
    source=f"{_CUDA}/Im2Col.cu and Col2Im.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def im2col(call: Call, self: Tensor, *_: object) -> Iterable[Step]:
    return _first_made_like(call, self, "self")


@rule(
    "aten.unfold_backward.default",
    takes="where windows overlap, the places that they cover along the dimension, as int64",
    source="aten/src/ATen/native/UnfoldBackward.cpp and UnfoldBackward.h, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def unfold_backward(
    call: Call, grad_in: Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int
) -> Iterable[Step]:
    yield OUTPUTS
    if step < size and input_sizes:
        yield Take(8 * ((grad_in.size(dim) - 1) * step + size), "places")


@rule(
    "aten.roll.default",
    takes="a contiguous copy of an input that is not; what was rolled along each dimension but "
    "the last",
    source=f"{_CUDA}/TensorTransformations.cu and native/TensorTransformations.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def roll(
    call: Call, self: Tensor, shifts: Sequence[int], dims: Sequence[int] = ()
) -> Iterable[Step]:
    copied = "contiguous copy of self"
    yield from contiguous(self, "self")
    for _dim in dims[1:]:
        yield Take(nbytes(self), "rolled along a dimension")
        yield Give(copied)
    yield OUTPUTS
