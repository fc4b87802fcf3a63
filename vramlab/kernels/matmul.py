"""Rules of matrix products: clones of operands that cuBLAS cannot read, and its workspaces.

cuBLAS reads a matrix whose rows or columns are unbroken (stride 1) and do not overlap. Any other is
first cloned. The one that everybody meets is the gradient of `sum()`: one number, expanded to the
whole shape with strides of zero.

Known limitation: complex conjugate views, which are sometimes cloned too, are not modelled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from vramlab.gpu.torch_internals import storage_id
from vramlab.kernels.rule_table.calls import BF16, F16, F32, F64, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.rule_table.registry import (
    CUBLAS,
    CUBLASLT,
    OUTPUTS,
    Call,
    Give,
    Status,
    Step,
    Take,
    rule,
)

_BLAS_CPP = "aten/src/ATen/native/cuda/Blas.cpp, PyTorch 2.13"
_SHARED_WORKSPACE = (2, 12)
"""From here on, cuBLASLt's handle is cuBLAS's, and takes no workspace before a call wants one."""
_FUSES_MATRICES = (2, 15)


def is_readable(matrix: Tensor) -> bool:
    """Return whether cuBLAS can read a matrix (rows, columns) in place.

    Source: prepare_matrix_for_cublas in aten/src/ATen/native/cuda/cuBlasCommonArgs.h, PyTorch 2.13.
    """
    (rows, columns), (row_stride, column_stride) = matrix.shape, matrix.stride()
    return (
        (column_stride == 1 and row_stride >= max(1, columns))
        or (row_stride == 1 and column_stride >= max(1, rows))
        # Of a row or a column alone, the other stride says nothing.
        or (rows == 1 and column_stride == 1)
        or (columns == 1 and row_stride == 1)
        or (rows == 1 and columns == 1)
    )


def is_batch_readable(batch: Tensor, transpose_result: bool, rows: int, columns: int) -> bool:
    """Return whether cuBLAS can read a batch of matrices in place.

    Args:
        batch: (matrices, ...) with one matrix in the last two dimensions.
        transpose_result: whether the result is row-major.
        rows: of the matrix as cuBLAS names it, m for the first operand and k for the second.
        columns: of the matrix as cuBLAS names it, k for the first operand and n for the second.

    Source: prepare_batch_matrix_for_cublas in Blas.cpp, PyTorch 2.13.
    """
    fast, leading = (2, 1) if transpose_result else (1, 2)
    stride = batch.stride()
    return (
        (stride[fast] == 1 and stride[leading] >= max(1, rows))
        or (stride[leading] == 1 and stride[fast] >= max(1, columns))
        or (batch.is_contiguous() and stride[1] != 0 and stride[2] != 0)
    )


def is_row_major(result: Tensor) -> bool:
    """Return whether cuBLAS takes a result as row-major: its transpose, operands swapped."""
    return result.is_contiguous() or not (
        result.stride(0) == 1 and result.stride(1) >= max(1, result.shape[0])
    )


def _clone(tensor: Tensor, what: str) -> Take:
    return Take(tensor.numel() * tensor.element_size(), f"contiguous clone of {what}")


def _matrix_clones(result: Tensor, left: Tensor, right: Tensor) -> Iterator[Take]:
    """Yield what cublasCommonArgs clones, in its order."""
    if not is_readable(result):
        yield _clone(result, "the result")
    operands = [(left, "the left operand"), (right, "the right operand")]
    if is_row_major(result):
        operands.reverse()
    for matrix, what in operands:
        if not is_readable(matrix):
            yield _clone(matrix, what)


@rule(
    "aten.mm.default",
    "aten.mm.out",
    "aten.mm.dtype",
    "aten.mm.dtype_out",
    takes="a clone of each operand without unbroken rows or columns; cuBLAS's workspace",
    source=_BLAS_CPP,
)
def mm(call: Call, self: Tensor, mat2: Tensor, *_: object, **__: object) -> Iterable[Step]:
    """Clone operands that cuBLAS cannot read as they lie, and let it take its workspace.

    Document 001: +80 MiB at the peak of a backward pass; document 003: +20 MiB.
    """
    (result,) = call.outputs
    yield OUTPUTS
    if result is None or result.numel() == 0 or self.shape[1] == 0:
        return
    yield from _matrix_clones(result, self, mat2)
    yield CUBLAS


def fuses_bias(
    call: Call, bias: Tensor, left: Tensor, right: Tensor, *, activation: bool = False
) -> bool:
    """Return whether `addmm` hands its bias to cuBLASLt and does not copy it into the result.

    Source: isInputCompliesAddmmCudaLt in Blas.cpp, PyTorch 2.13, for CUDA 12.1 and later. That a
    single row is handed over in 2.11 is from the recording of an H200, that it is not in 2.10, and
    is again in 2.15, from the native engine.
    """
    (result,) = call.outputs
    release = call.context.torch_version
    takes_one_row = release < (2, 10) or release == (2, 11) or release >= (2, 15)
    is_row = (
        bias.is_contiguous()
        and (bias.dim() == 1 or sum(size != 1 for size in bias.shape) == 1)
        and bias.shape[-1] == right.shape[1]
    )
    return (
        call.context.environment.get("DISABLE_ADDMM_CUDA_LT") != "1"
        and result is not None
        and result.is_contiguous()
        and (is_row or (activation and bias.dim() == 2))
        and left.dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
        and min(right.shape) > 1
        and (left.shape[0] > 1 or takes_one_row)
    )


def fuses_matrix(call: Call, self: Tensor, right: Tensor, beta: complex) -> bool:
    """Return whether `addmm` lets cuBLASLt read the matrix that it adds, and copies nothing.

    As the native engine shows it for PyTorch 2.15.0, in float16 and bfloat16 alone.
    """
    (result,) = call.outputs
    return (
        call.context.torch_version >= _FUSES_MATRICES
        and call.context.environment.get("DISABLE_ADDMM_CUDA_LT") != "1"
        and result is not None
        and beta != 0
        and self.dtype == result.dtype
        and result.dtype in (torch.float16, torch.bfloat16)
        and self.shape == result.shape
        and all(has_dense_rows(matrix) for matrix in (self, result))
        and storage_id(self.untyped_storage()) != storage_id(result.untyped_storage())
        and min(right.shape) > 1
    )


def has_dense_rows(matrix: Tensor) -> bool:
    """Return whether each row lies unbroken, and none over another."""
    return matrix.stride(1) == 1 and matrix.stride(0) >= matrix.shape[1]


@rule(
    "aten.addmm.default",
    "aten.addmm.dtype",
    "aten.addmm.dtype_out",
    "aten.addmm.out",
    "aten.addmm_.default",
    takes="as mm; the workspace is cuBLASLt's when it adds the bias itself, from PyTorch 2.15 on "
    "also a matrix of 16-bit numbers",
    source=_BLAS_CPP,
)
def addmm(
    call: Call,
    self: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *_: object,
    beta: complex = 1,
    activation: bool = False,
    **__: object,
) -> Iterable[Step]:
    """Let cuBLAS take its workspace: document 001's first forward pass leaves one behind."""
    (result,) = call.outputs
    yield OUTPUTS
    if result is None or result.numel() == 0 or mat1.shape[1] == 0:
        return
    yield from _matrix_clones(result, mat1, mat2)
    is_fused = beta == 1 and fuses_bias(call, self, mat1, mat2, activation=activation)
    is_fused |= not activation and fuses_matrix(call, self, mat2, beta)
    yield CUBLASLT if is_fused else CUBLAS


@rule(
    "aten.addbmm.default",
    "aten.addbmm.out",
    "aten.addbmm_.default",
    takes="what `addmm_` takes for each pair of matrices",
    source="`addbmm_impl_` in aten/src/ATen/native/LinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def addbmm(
    call: Call, self: Tensor, batch1: Tensor, batch2: Tensor, *_: object, **__: object
) -> Iterable[Step]:
    """Add one product after the other to the result."""
    (result,) = call.outputs
    yield OUTPUTS
    if result is None or result.numel() == 0 or batch1.shape[2] == 0:
        return
    for left, right in zip(batch1, batch2, strict=True):
        clones = list(_matrix_clones(result, left, right))
        yield from clones
        yield CUBLAS
        yield from (Give(step.what) for step in clones)


@rule(
    "aten._addmm_activation.default",
    "aten._addmm_activation.out",
    takes="as addmm",
    source=_BLAS_CPP,
)
def addmm_activation(
    call: Call,
    self: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: complex = 1,
    **_: object,
) -> Iterable[Step]:
    return addmm(call, self, mat1, mat2, beta=beta, activation=True)


@rule(
    "aten._int_mm.default",
    "aten._int_mm.out",
    takes="a clone of each operand without unbroken rows or columns; before PyTorch 2.12, cuBLAS's "
    "workspace, which making cuBLASLt's handle makes",
    source=_BLAS_CPP + "; int8_gemm in cuda/CUDABlas.cpp",
)
def int_mm(call: Call, self: Tensor, mat2: Tensor, **_: object) -> Iterable[Step]:
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    yield from _matrix_clones(result, self, mat2)
    if call.context.torch_version < _SHARED_WORKSPACE:
        yield CUBLAS


@rule(
    "aten._scaled_mm.default",
    "aten._scaled_mm.out",
    "aten._scaled_addmm.default",
    "aten._scaled_addmm.out",
    takes="the workspace is cuBLASLt's",
    source="ScaledBlas.cpp in aten/src/ATen/native/cuda, CUDABlas.cpp in ATen/cuda, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def scaled_mm(call: Call, *_: object, **__: object) -> Iterable[Step]:
    yield OUTPUTS
    yield CUBLASLT


def _batch_product(call: Call, left: Tensor, right: Tensor) -> Iterator[Step]:
    """Yield the steps of a product of batches (b, m, k) @ (b, k, n).

    Source: baddbmm_out_cuda_impl in Blas.cpp, PyTorch 2.13.
    """
    (result,) = call.outputs
    yield OUTPUTS
    if result is None or result.numel() == 0 or left.shape[2] == 0:
        return
    sizes, stride = result.shape, result.stride()
    transpose_result = False
    if stride[1] == 1 and (sizes[2] == 1 or stride[2] >= max(1, sizes[1])):
        pass
    elif stride[2] == 1 and (sizes[1] == 1 or stride[1] >= max(1, sizes[2])):
        transpose_result = True
    else:
        yield _clone(result, "the result")
    operands = [(left, "the left operand"), (right, "the right operand")]
    if transpose_result:
        operands.reverse()
    leading = 1 if transpose_result else 2
    m, n = sizes[2 if transpose_result else 1], sizes[leading]
    k = operands[0][0].shape[leading]
    for (batch, what), rows, columns in zip(operands, (m, k), (k, n), strict=True):
        if not is_batch_readable(batch, transpose_result, rows, columns):
            yield _clone(batch, what)
    yield CUBLAS


@rule(
    "aten.bmm.default",
    "aten.bmm.out",
    "aten.bmm.dtype",
    "aten.bmm.dtype_out",
    takes="a clone of each operand without unbroken rows or columns; cuBLAS's workspace",
    source=_BLAS_CPP,
)
def bmm(call: Call, self: Tensor, mat2: Tensor, *_: object, **__: object) -> Iterable[Step]:
    return _batch_product(call, self, mat2)


@rule(
    "aten.baddbmm.default",
    "aten.baddbmm.out",
    "aten.baddbmm_.default",
    takes="as bmm",
    source=_BLAS_CPP,
)
def baddbmm(
    call: Call, self: Tensor, batch1: Tensor, batch2: Tensor, **_: object
) -> Iterable[Step]:
    return _batch_product(call, batch1, batch2)


def _matrix_vector(call: Call, matrix: Tensor, vector: Tensor) -> Iterator[Step]:
    """Yield the steps of gemv. Source: addmv_out_cuda in Blas.cpp, PyTorch 2.13."""
    (result,) = call.outputs
    yield OUTPUTS
    if result is None or result.numel() == 0 or matrix.numel() == 0:
        return
    if vector.stride(0) == 0 and not vector.is_contiguous():
        yield _clone(vector, "the vector")
    (rows, columns), stride = matrix.shape, matrix.stride()
    readable = (stride[0] == 1 and stride[1] >= max(1, rows)) or (
        stride[1] == 1 and stride[0] >= max(1, columns)
    )
    if not readable and not matrix.is_contiguous():
        yield _clone(matrix, "the matrix")
    yield CUBLAS


@rule(
    "aten.mv.default",
    "aten.mv.out",
    takes="a clone of a matrix without unbroken rows or columns, or of an expanded vector; "
    "cuBLAS's workspace",
    source=_BLAS_CPP,
)
def mv(call: Call, self: Tensor, vec: Tensor, **_: object) -> Iterable[Step]:
    return _matrix_vector(call, self, vec)


@rule(
    "aten.addmv.default",
    "aten.addmv.out",
    "aten.addmv_.default",
    takes="as mv",
    source=_BLAS_CPP,
)
def addmv(call: Call, self: Tensor, mat: Tensor, vec: Tensor, **_: object) -> Iterable[Step]:
    return _matrix_vector(call, mat, vec)


@rule(
    "aten.dot.default",
    "aten.dot.out",
    "aten.vdot.default",
    "aten.vdot.out",
    takes="cuBLAS's workspace",
    source=_BLAS_CPP,
)
def dot(call: Call, self: Tensor, other: Tensor, **_: object) -> Iterable[Step]:
    return (OUTPUTS, CUBLAS)


# Calls that ask a real GPU.

_PRODUCTS = ((256, 512, 1024), (1, 512, 1024), (512, 1, 64), (257, 511, 1023), (4096, 4096, 4096))


@asks("aten.mm.default")
def _mm_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16, F16, F64):
        for m, k, n in _PRODUCTS:
            yield op_call(aten.mm.default, zeros(m, k, dtype=dtype), zeros(k, n, dtype=dtype))
        turned = zeros(512, 1024, dtype=dtype, layout="transposed")
        apart = zeros(512, 1024, dtype=dtype, layout="apart")
        yield op_call(aten.mm.default, zeros(256, 512, dtype=dtype), turned)
        yield op_call(aten.mm.default, zeros(256, 512, dtype=dtype), apart)
        yield op_call(aten.mm.default, zeros(256, 512, dtype=dtype, layout="apart"), turned)
        yield op_call(aten.mm.default, zeros(256, 512, dtype=dtype, layout="expanded"), turned)


@asks("aten.addmm.default")
def _addmm_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16, F16, F64):
        for m, k, n in (*_PRODUCTS, (256, 512, 1), (1, 1, 1), (2, 64, 64), (64, 1, 64)):
            for bias in (zeros(n, dtype=dtype), zeros(m, n, dtype=dtype)):
                for layout in ("contiguous", "transposed"):
                    right = zeros(k, n, dtype=dtype, layout=layout)
                    yield op_call(aten.addmm.default, bias, zeros(m, k, dtype=dtype), right)
        yield op_call(
            aten.addmm.default,
            zeros(1024, dtype=dtype),
            zeros(256, 512, dtype=dtype, layout="apart"),
            zeros(512, 1024, dtype=dtype),
        )


@asks("aten._addmm_activation.default")
def _addmm_activation_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for m, k, n in ((256, 512, 1024), (1, 512, 1024)):
            operands = zeros(n, dtype=dtype), zeros(m, k, dtype=dtype), zeros(k, n, dtype=dtype)
            yield op_call(aten._addmm_activation.default, *operands)


@asks("aten._int_mm.default")
def _int_mm_calls() -> Iterator[OpCall]:
    left, right = zeros(64, 128, dtype=torch.int8), zeros(128, 256, dtype=torch.int8)
    yield op_call(aten._int_mm.default, left, right)


_BATCHES = ((8, 64, 128, 64), (1, 64, 128, 64), (8, 1, 128, 64), (16, 512, 512, 64))


@asks("aten.bmm.default")
def _bmm_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16, F16):
        for b, m, k, n in _BATCHES:
            for layout in ("contiguous", "transposed", "apart", "expanded"):
                right = zeros(b, k, n, dtype=dtype, layout=layout)
                yield op_call(aten.bmm.default, zeros(b, m, k, dtype=dtype), right)
        left = zeros(8, 64, 128, dtype=dtype, layout="apart")
        yield op_call(aten.bmm.default, left, zeros(8, 128, 64, dtype=dtype))


@asks("aten.baddbmm.default")
def _baddbmm_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for b, m, k, n in _BATCHES:
            right = zeros(b, k, n, dtype=dtype)
            left = zeros(b, m, k, dtype=dtype)
            yield op_call(aten.baddbmm.default, zeros(b, m, n, dtype=dtype), left, right)


@asks("aten.mv.default")
def _mv_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "transposed", "apart"):
            matrix = zeros(1024, 512, dtype=dtype, layout=layout)
            yield op_call(aten.mv.default, matrix, zeros(512, dtype=dtype))
        yield op_call(
            aten.mv.default,
            zeros(1024, 512, dtype=dtype),
            zeros(512, dtype=dtype, layout="expanded"),
        )


@asks("aten.addmv.default")
def _addmv_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for layout in ("contiguous", "apart"):
            matrix = zeros(1024, 512, dtype=dtype, layout=layout)
            yield op_call(
                aten.addmv.default, zeros(1024, dtype=dtype), matrix, zeros(512, dtype=dtype)
            )


@asks("aten.dot.default")
def _dot_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        yield op_call(aten.dot.default, zeros(4096, dtype=dtype), zeros(4096, dtype=dtype))
