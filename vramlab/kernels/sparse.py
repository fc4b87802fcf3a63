"""Rules of sparse tensors of layout COO: adding up entries, and products with dense matrices.

cuSPARSE's own buffer for a product is not known, and the report says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from vramlab.cuda_rules.cub import merge_sort_bytes, unique_by_key_bytes
from vramlab.gpu.torch_internals import sparse_parts
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

_INDEX_BYTES = 8
_FEWEST_SORTED = 2  # entries


@rule(
    "aten._coalesce.default",
    takes="the place of each entry as one number, sorted by a merge sort, with its number before "
    "and where each different one begins",
    source="aten/src/ATen/native/sparse/cuda/SparseCUDATensor.cu and SparseTensorUtils.cpp, "
    "PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def coalesce(call: Call, self: Tensor) -> Iterable[Step]:
    """Add up the entries of one place.

    Known limitation: the result's values are allocated before its indices there.
    """
    yield from _coalesce(call, self, [Output(0)])


def _coalesce(call: Call, self: Tensor, results: Iterable[Step]) -> Iterator[Step]:
    """Yield the steps of adding up the entries of a sparse tensor; `results` is where they go."""
    indices, values = sparse_parts(self)
    dims, count = indices.shape
    if count < _FEWEST_SORTED:
        yield from results
        return
    flat = _INDEX_BYTES * count
    yield Take(flat, "places as numbers")
    yield Take(flat, "numbers of the entries")
    yield Take(flat, "where each place begins")
    for storage in (
        merge_sort_bytes(count, _INDEX_BYTES, _INDEX_BYTES),
        unique_by_key_bytes(count, call.context.model),
    ):
        yield Take(storage, "storage of the algorithm")
        yield Give("storage of the algorithm")
    yield from contiguous(values, "the values")
    if dims == 1:  # the result's indices are cut from them
        yield Give("places as numbers")
    yield from results
    yield Give("where each place begins")
    yield Give("numbers of the entries")
    if dims > 1:
        yield Give("places as numbers")


@rule(
    "aten._to_dense.default",
    takes="the place of each entry as one number, if entries of several dimensions may be of one "
    "place",
    source="`add_out_dense_sparse_cuda` in aten/src/ATen/native/sparse/cuda/"
    "SparseCUDATensorMath.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def to_dense(call: Call, self: Tensor, *_: object, **__: object) -> Iterable[Step]:
    """Add to zeros."""
    yield OUTPUTS
    if self.layout is torch.sparse_coo and not self.is_coalesced() and self.sparse_dim() > 1:
        yield Take(_INDEX_BYTES * sparse_parts(self)[0].shape[1], "places as numbers")


@rule(
    "aten._sparse_addmm.default",
    takes="the sparse matrix coalesced, if it is not; its row and column indices as int32, the "
    "rows compressed; a copy of the result by columns, and of a dense operand in neither order",
    source="aten/src/ATen/native/sparse/cuda/SparseCUDATensorMath.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def sparse_addmm(
    call: Call, self: Tensor, mat1: Tensor, mat2: Tensor, **_: object
) -> Iterable[Step]:
    """Multiply by a sparse matrix.

    Known limitation: cuSPARSE's buffer (`cusparseSpMM_bufferSize`) is not counted.
    """
    (result,) = call.outputs
    assert result is not None
    yield Output(0)
    indices, values = sparse_parts(mat1)
    count = indices.shape[1]
    if not mat1.is_coalesced():
        new = [
            Take(nbytes(values), "values, added up"),
            Take(nbytes(indices), "indices, without repetitions"),
        ]
        yield from _coalesce(call, mat1, new)
    if not count:
        return
    yield Take(4 * (mat1.shape[0] + 1), "compressed rows")
    yield Take(4 * count, "rows as int32")
    yield Give("rows as int32")
    yield Take(4 * count, "columns as int32")
    if not _is_by_columns(result):
        yield Take(nbytes(result), "result by columns")
    if not _is_by_columns(mat2) and not (mat2.stride(1) == 1 and mat2.stride(0) != mat2.shape[1]):
        yield from contiguous(mat2, "the dense operand")


def _is_by_columns(matrix: Tensor) -> bool:
    return matrix.stride() == (1, matrix.shape[0])


@rule(
    "aten.sparse_mask.default",
    takes="of a dense tensor: a one, and its values at the places of the mask",
    source="`sparse_mask` in aten/src/ATen/native/sparse/SparseTensor.cpp and SparseBinaryOp"
    "IntersectionCommon.h, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def sparse_mask(call: Call, self: Tensor, mask: Tensor) -> Iterable[Step]:
    if self.layout is torch.strided:
        _, values = sparse_parts(mask)
        yield Take(self.element_size(), "one")
        yield Take(values.numel() * self.element_size(), "values of the dense tensor")
    yield OUTPUTS
