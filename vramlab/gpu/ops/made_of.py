"""Ops that CUDA makes of other ops, below autograd, where meta tensors have a kernel of their own.

What they allocate is what their parts allocate, so here are the parts, in PyTorch's order. Values
that PyTorch checks on the way, such as probabilities below 0, are taken to be right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from vramlab.gpu.core.op_table import OPS, made_of, op, written_by
from vramlab.gpu.core.storage_record import SHADOWS
from vramlab.gpu.torch_internals import DispatchKey, kernel_of
from vramlab.kernels.rule_table.registry import overloads

aten = torch.ops.aten

F = TypeVar("F", bound=Callable[..., Any])

ON_ALL_DEVICES = (
    "aten._euclidean_dist.default",
    "aten._is_all_true.default",
    "aten._is_any_true.default",
    "aten._trilinear.default",
    "aten._unsafe_masked_index.default",
    "aten._unsafe_masked_index_put_accumulate.default",
    "aten.affine_grid_generator.default",
    "aten.cholesky_solve.default",
    "aten.isinf.default",
    "aten.ldexp.Tensor",
    "aten.ldexp.out",
    "aten.ldexp_.default",
    "aten.linalg_pinv.atol_rtol_tensor",
    "aten.masked_scatter_backward.default",
    "aten.mvlgamma.default",
    "aten.mvlgamma_.default",
    "aten.soft_margin_loss_backward.default",
    "aten.soft_margin_loss_backward.grad_input",
)
"""Ops for which C++ has one function for all devices: it is run, and its parts are seen.

Source: CompositeExplicitAutograd in aten/src/ATen/native/native_functions.yaml, PyTorch 2.13.
"""


def _run_on_all_devices(name: str, *args: Any, **kwargs: Any) -> Any:
    (func,) = overloads(name)
    for key in (
        DispatchKey.CompositeExplicitAutograd,
        DispatchKey.CompositeExplicitAutogradNonFunctional,
    ):
        if func.has_kernel_for_dispatch_key(key):
            return kernel_of(func, key)(*args, **kwargs)
    raise LookupError(f"{name} has no function for all devices: write down what it is made of")


for _name in ON_ALL_DEVICES:
    op(_name, made_of=partial(_run_on_all_devices, _name))


def allocates_as(name: str) -> Callable[[F], F]:
    """Register what runs an op's parts for what they allocate: it does not compute its result."""

    def register(parts: F) -> F:
        def run(*args: Any, **kwargs: Any) -> Any:
            (func,) = overloads(name)  # not at import: another PyTorch may not have the op
            changed = list(written_by(OPS[func], args, kwargs))
            return SHADOWS.follow_parts(
                func, args, kwargs, changed, partial(parts, *args, **kwargs)
            )

        op(name, made_of=run)
        return parts

    return register


@made_of("aten.dist.default")
def dist(self: Tensor, other: Tensor, p: float = 2) -> Tensor:
    """Take the norm of the difference.

    Source: `dist` in aten/src/ATen/native/Distance.cpp, PyTorch 2.13.
    """
    return aten.linalg_vector_norm(aten.sub.Tensor(self, other), p)


@made_of("aten.median.default")
def median(self: Tensor) -> Tensor:
    """Sort everything, and look whether the last is nan.

    Source: `median_impl` in aten/src/ATen/native/cuda/Sorting.cpp, PyTorch 2.13.
    """
    if not self.numel():
        return aten.full([], math.nan, dtype=self.dtype, device=self.device)
    ordered = aten.sort(aten.flatten(self))[0]
    last = ordered[-1]
    return aten.where.self(aten.isnan(last), last, ordered[(self.numel() - 1) // 2])


@made_of("aten.nanmedian.default")
def nanmedian(self: Tensor) -> Tensor:
    """Sort everything, and take the middle of what is not nan.

    Source: `median_impl` in aten/src/ATen/native/cuda/Sorting.cpp, PyTorch 2.13.
    """
    if not self.numel():
        return aten.full([], math.nan, dtype=self.dtype, device=self.device)
    ordered = aten.sort(aten.flatten(self))[0]
    # C++ holds what an expression makes until its end.
    are_nan = aten.isnan(ordered)
    nans = aten.sum(are_nan)
    others = aten.rsub.Scalar(nans, self.numel() - 1)
    half = aten.div.Tensor(others, 2)
    middle = aten._to_copy(half, dtype=torch.int64)
    del are_nan, nans, others, half
    return aten.index.Tensor(ordered, [middle])


@allocates_as("aten.histc.default")
def histc(self: Tensor, bins: int = 100, min: float = 0, max: float = 0) -> Tensor:
    """Count, between the smallest and the largest number where no borders are given.

    Source: `_histc_cuda_template` in aten/src/ATen/native/cuda/SummaryOps.cu, PyTorch 2.13.
    """
    result = aten.zeros([bins], dtype=self.dtype, device=self.device)
    if min == max and self.numel():
        borders = aten.min(self), aten.max(self)
        del borders
    return result


@made_of("aten.multinomial.default")
def multinomial(
    self: Tensor, num_samples: int, replacement: bool = False, *, generator: Any = None
) -> Tensor:
    """Take the largest of each row, divided by exponential noise; or search running sums.

    Source: `multinomial_out` in aten/src/ATen/native/Distributions.cpp and
    cuda/MultinomialKernel.cu, PyTorch 2.13.
    """
    rows = list(self.shape[:-1])
    result = aten.empty([*rows, num_samples], dtype=torch.int64, device=self.device)
    if not result.numel():
        return result
    if replacement and num_samples > 1:
        copied = aten.clone(self, memory_format=torch.contiguous_format)
        normalized = aten.empty_like(copied)
        sums = aten.cumsum(aten.view(normalized, [math.prod(rows), self.shape[-1]]), 1)
        del sums, normalized, copied
        return result
    smallest, largest = aten.aminmax(self)
    is_valid = aten.bitwise_and.Tensor(
        aten.lt.Scalar(largest, math.inf), aten.ge.Scalar(smallest, 0)
    )
    totals = aten.sum.dim_IntList(self, [1]) if rows else aten.sum(self)
    are_zero = aten.eq.Scalar(totals, 0)
    lacks = aten.any(are_zero) if rows else are_zero
    del totals, are_zero
    aten.bitwise_not(lacks)
    noise = aten.exponential_(aten.empty_like(self))
    aten.div_.Tensor(noise, noise)
    if num_samples == 1:
        return result
    values = aten.empty([*rows, num_samples], dtype=self.dtype, device=self.device)
    aten.topk.values(noise, num_samples, values=values, indices=result)
    del is_valid, values
    return result


@made_of("aten.normal.Tensor_float")
def normal_around(mean: Tensor, std: float = 1, *, generator: Any = None) -> Tensor:
    """Draw around each mean.

    Source: `normal_out_impl` in aten/src/ATen/native/DistributionTemplates.h, PyTorch 2.13.
    """
    result = aten.empty_like(mean, memory_format=torch.contiguous_format)
    wide = aten.empty_like(result, memory_format=torch.contiguous_format)
    aten.add_.Tensor(aten.normal_(result), mean)
    del wide
    return result


@made_of("aten.normal.float_Tensor")
def normal_within(mean: float, std: Tensor, *, generator: Any = None) -> Tensor:
    """Draw within each deviation, which is looked at twice.

    Source: `normal_out_impl` in aten/src/ATen/native/DistributionTemplates.h, PyTorch 2.13.
    """
    _check_deviations(std)
    result = aten.empty_like(std, memory_format=torch.contiguous_format)
    _check_deviations(std)
    center = aten.full([], mean, dtype=result.dtype, device=result.device)
    aten.add_.Tensor(aten.mul_.Tensor(aten.normal_(result), std), center)
    return result


@made_of("aten.normal.Tensor_Tensor")
def normal_of_both(mean: Tensor, std: Tensor, *, generator: Any = None) -> Tensor:
    """Draw around each mean, within each deviation.

    Source: `normal_out_impl` in aten/src/ATen/native/DistributionTemplates.h, PyTorch 2.13.
    """
    _check_deviations(std)
    shape = torch.broadcast_shapes(mean.shape, std.shape)
    result = aten.empty(list(shape), dtype=mean.dtype, device=mean.device)
    _check_deviations(std)
    return aten.add_.Tensor(aten.mul_.Tensor(aten.normal_(result), std), mean)


def _check_deviations(std: Tensor) -> None:
    if std.numel():
        least = aten.min(std)
        aten.ge.Scalar(least, 0)
        del least  # as C++ lets them go


@allocates_as("aten.scatter_reduce.two")
def scatter_reduce(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Scatter into a copy.

    Source: `scatter_reduce_two` in aten/src/ATen/native/TensorAdvancedIndexing.cpp, PyTorch 2.13.
    """
    result = aten.clone(self, memory_format=torch.contiguous_format)
    return scatter_reduce_(result, dim, index, src, reduce, include_self=include_self)


@allocates_as("aten.scatter_reduce_.two")
def scatter_reduce_(
    self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Scatter; a mean divides by how much came to each place.

    Source: `scatter_reduce_two` in aten/src/ATen/native/TensorAdvancedIndexing.cpp, PyTorch 2.13.
    """
    if reduce == "mean" and index.numel():
        ones = aten.ones_like(src)
        counts = aten.ones_like(self) if include_self else aten.zeros_like(self)
        aten.scatter_add_(counts, dim, index, ones)
        aten.eq.Scalar(counts, 0)
    return self


@allocates_as("aten.index_reduce.default")
def index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Reduce rows into a copy.

    Source: `index_reduce_func_cuda_impl` in aten/src/ATen/native/cuda/Indexing.cu, PyTorch 2.13.
    """
    return index_reduce_(aten.clone(self), dim, index, source, reduce, include_self=include_self)


@allocates_as("aten.index_reduce_.default")
def index_reduce_(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str, *, include_self: bool = True
) -> Tensor:
    """Reduce rows; a mean divides by how many came to each place.

    Source: `index_reduce_func_cuda_impl` in aten/src/ATen/native/cuda/Indexing.cu, PyTorch 2.13.
    """
    if reduce == "mean" and index.numel():
        counts = aten.ones_like(self) if include_self else aten.zeros_like(self)
        aten.index_add_(counts, dim, index, aten.ones_like(source))
        aten.eq.Scalar(counts, 0)
    return self


@allocates_as("aten.isin.Tensor_Tensor")
def isin(
    elements: Tensor, test_elements: Tensor, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Compare each with each where there are few to look for, else sort all.

    Source: `isin_Tensor_Tensor_out` in aten/src/ATen/native/TensorCompare.cpp, PyTorch 2.13.
    """
    result = aten.empty(list(elements.shape), dtype=torch.bool, device=elements.device)
    if not elements.numel():
        return result
    if test_elements.numel() < 10 * elements.numel() ** 0.145:
        wide = aten.view(elements, [*elements.shape, *(1,) * test_elements.dim()])
        within = list(range(elements.dim(), wide.dim()))
        aten.any.dims(aten.eq.Tensor(wide, test_elements), within)
        return result
    places: Tensor | None = None
    if assume_unique:
        left, right = aten.reshape(elements, [-1]), aten.reshape(test_elements, [-1])
    else:
        left, places = aten._unique(elements, False, True)
        right = aten._unique(test_elements, False)[0]
    together = aten.cat([left, right])
    del left, right  # moved into it; the whole stays to the end
    order = aten.sort.stable(together, stable=True, dim=0)
    repeated = aten.empty_like(order[0], dtype=torch.bool)
    aten.eq.Tensor(order[0][1:], order[0][:-1])  # `ne`, if it is inverted, allocates the same
    mask = aten.empty_like(repeated)
    aten.index_copy_(mask, 0, order[1], repeated)
    if places is not None:
        aten.index.Tensor(mask, [places])
    return result


@made_of("aten.trace.default")
def trace(self: Tensor) -> Tensor:
    """Sum the diagonal.

    Source: `trace_cuda` in aten/src/ATen/native/cuda/TriangularOps.cu, PyTorch 2.13.
    """
    return aten.sum.default(aten.diagonal.default(self))


@made_of("aten.mvlgamma.out")
def mvlgamma_out(self: Tensor, p: int, *, out: Tensor) -> Tensor:
    """Compute, and copy the result.

    Source: `mvlgamma_out` in aten/src/ATen/native/UnaryOps.cpp, PyTorch 2.13.
    """
    return aten.copy_(out, aten.mvlgamma(self, p))


@made_of("aten._linalg_check_errors.default")
def check_errors(info: Tensor, api_name: str, *, is_matrix: bool) -> None:
    """Look whether any matrix had an error: none has.

    Source: `_linalg_check_errors` in aten/src/ATen/native/BatchLinearAlgebra.cpp, PyTorch 2.13.
    """
    aten.any(info)
