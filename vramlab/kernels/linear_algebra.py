"""Rules of linear algebra that cuBLAS does: arrays of pointers to the matrices of a batch.

What cuSOLVER and MAGMA take is not known: the report names those ops. What PyTorch takes around
their calls was traced on its own CUDA code, over stub libraries.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from torch import Tensor

from vramlab.kernels.rule_table.operands import nbytes
from vramlab.kernels.rule_table.registry import OUTPUTS, Call, Give, Status, Step, Take, rule

_POINTER_BYTES = 8


_LARGE_MATRIX = 512
"""Rows from which PyTorch has LU factors computed matrix by matrix, by cuSOLVER."""


def _is_laid_out(matrices: Tensor) -> bool:
    """Return whether rows or columns lie one after the other, and matrices too."""
    return matrices.is_contiguous() or matrices.mT.is_contiguous()


def _triangles(matrices: int, size: int) -> Iterator[Step]:
    """Yield the pointers that solving takes, unless matrices are few and large."""
    if (matrices > 8 or size < 64) and size <= 512:
        yield Take(matrices * _POINTER_BYTES, "pointers to the triangles")
        yield Take(matrices * _POINTER_BYTES, "pointers to the right sides")
        yield Give("pointers to the triangles")
        yield Give("pointers to the right sides")


@rule(
    "aten.linalg_solve_triangular.default",
    "aten.linalg_solve_triangular.out",
    takes="a copy of triangles that are part of larger matrices or expanded; two pointers for each "
    "matrix, unless the matrices are few and large",
    source="aten/src/ATen/native/BatchLinearAlgebra.cpp and "
    "cuda/linalg/BatchLinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def solve_triangular(call: Call, self: Tensor, other: Tensor, **_: object) -> Iterable[Step]:
    yield OUTPUTS
    result = call.outputs[0]
    if result is None or not result.numel():
        return
    if not _is_laid_out(result):
        yield Take(nbytes(result), "the result, contiguous")
    batch = result.shape[:-2]
    if not _is_laid_out(self.expand(*batch, *self.shape[-2:])):
        yield Take(math.prod(batch) * _matrix_bytes(self), "triangles, contiguous")
    yield from _triangles(math.prod(batch), self.shape[-1])


def _matrix_bytes(tensor: Tensor) -> int:
    return math.prod(tensor.shape[-2:]) * tensor.element_size()


@rule(
    "aten.triangular_solve.default",
    takes="two pointers for each matrix, unless the matrices are few and large",
    source="aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def triangular_solve(call: Call, self: Tensor, triangle: Tensor, *_: object) -> Iterable[Step]:
    yield OUTPUTS
    result = call.outputs[0]
    if result is not None and result.numel():
        yield from _triangles(math.prod(result.shape[:-2]), triangle.shape[-1])


def _permutation(rows: int, matrices: tuple[int, ...]) -> Iterator[Step]:
    yield Take(8 * rows, "order of the rows")
    if matrices:
        yield Take(8 * rows * math.prod(matrices), "order of the rows of each matrix")
    yield Give("order of the rows")
    yield Give("order of the rows of each matrix")


def _factorization(self: Tensor, *, pivot: bool) -> Iterator[Step]:
    """Yield what factorizing takes: pointers of a batch for cuBLAS; pivots that are in order.

    Known limitation: what cuSOLVER takes for single, large and rectangular matrices.
    """
    rows, columns = self.shape[-2:]
    matrices = math.prod(self.shape[:-2])
    if not self.numel():
        return
    if rows == columns and matrices > 1 and rows < _LARGE_MATRIX:
        yield Take(_POINTER_BYTES * matrices, "pointers to the matrices")
        yield Give("pointers to the matrices")
    if not pivot:
        yield Take(4 * min(rows, columns), "pivots in order")
        yield Give("pivots in order")


@rule(
    "aten.linalg_lu_factor_ex.default",
    takes="pointers to the matrices of a batch, unless they are large; numbers in order without "
    "pivots",
    source="aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def lu_factor(
    call: Call, self: Tensor, *, pivot: bool = True, check_errors: bool = False
) -> Iterable[Step]:
    yield OUTPUTS
    yield from _factorization(self, pivot=pivot)


@rule(
    "aten.lu_unpack.default",
    takes="the order of the rows, once and for each matrix of a batch",
    source="aten/src/ATen/native/BatchLinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def lu_unpack(
    call: Call,
    data: Tensor,
    pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
) -> Iterable[Step]:
    yield OUTPUTS
    if unpack_pivots:
        yield from _permutation(data.shape[-2], tuple(data.shape[:-2]))


@rule(
    "aten.linalg_lu.default",
    takes="the factors in one matrix, pivots, one status for each matrix; pointers of a batch; the "
    "order of the rows",
    source="aten/src/ATen/native/BatchLinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def linalg_lu(call: Call, self: Tensor, *, pivot: bool = True) -> Iterable[Step]:
    yield OUTPUTS
    matrices = tuple(self.shape[:-2])
    count, smaller = math.prod(matrices), min(self.shape[-2:])
    yield Take(nbytes(self), "factors")
    yield Take(4 * count * smaller, "pivots")
    yield Take(4 * count, "statuses")
    yield from _factorization(self, pivot=pivot)
    yield Give("factors")
    if pivot:
        yield from _permutation(self.shape[-2], matrices)
    yield Give("statuses")


def _sign_of_permutation(self: Tensor) -> Iterator[Step]:
    """Yield the steps of `lu_det_P`, up to the count of exchanged rows, which is kept."""
    rows, matrices = self.shape[-1], math.prod(self.shape[:-2])
    yield Take(4 * rows, "numbers of the rows")
    yield Take(rows * matrices, "which rows are exchanged")
    yield Take(8 * matrices, "exchanged rows")
    yield Take(8 * rows * matrices, "which rows are exchanged, as int64")
    for what in ("which rows are exchanged, as int64", "which rows are exchanged"):
        yield Give(what)
    yield Give("numbers of the rows")


@rule(
    "aten._linalg_det.default",
    takes="statuses; what factorizing takes; the product of the diagonal, and the sign of the "
    "permutation",
    source="aten/src/ATen/native/LinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def det(call: Call, matrices: Tensor) -> Iterable[Step]:
    yield OUTPUTS
    count = math.prod(matrices.shape[:-2])
    yield Take(4 * count, "statuses")
    yield from _factorization(matrices, pivot=True)
    yield Take(count * matrices.element_size(), "product of the diagonal")
    yield from _sign_of_permutation(matrices)
    yield Give("exchanged rows")


@rule(
    "aten._linalg_slogdet.default",
    takes="statuses; what factorizing takes; the sign of the permutation and of the diagonal, and "
    "the diagonal without it",
    source="aten/src/ATen/native/LinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def slogdet(call: Call, matrices: Tensor) -> Iterable[Step]:
    yield OUTPUTS
    count, item_bytes = math.prod(matrices.shape[:-2]), matrices.element_size()
    diagonal_bytes = matrices.shape[-1] * count * item_bytes
    yield Take(4 * count, "statuses")
    yield from _factorization(matrices, pivot=True)
    yield from _sign_of_permutation(matrices)
    yield Take(diagonal_bytes, "signs of the diagonal")
    yield Take(count * item_bytes, "their product")
    for what in ("their product", "signs of the diagonal", "exchanged rows"):
        yield Give(what)
    yield Take(matrices.dtype.to_real().itemsize * matrices.shape[-1] * count, "absolute diagonal")


@rule(
    "aten._cholesky_solve_helper.default",
    takes="of a batch: two pointers for each matrix, unless the matrices are few and large, twice",
    source="aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def cholesky_solve(call: Call, self: Tensor, factors: Tensor, upper: bool) -> Iterable[Step]:
    yield OUTPUTS
    yield from _both_triangles(factors)


@rule(
    "aten.cholesky_inverse.default",
    takes="of a batch: a copy of the factors, and what solving with them takes",
    source="aten/src/ATen/native/cuda/linalg/BatchLinearAlgebra.cpp, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def cholesky_inverse(call: Call, self: Tensor, upper: bool = False) -> Iterable[Step]:
    yield OUTPUTS
    if math.prod(self.shape[:-2]) > 1:
        yield Take(nbytes(self), "factors")
    yield from _both_triangles(self)


def _both_triangles(factors: Tensor) -> Iterator[Step]:
    """Yield what solving with the factors of a batch and their transposes takes.

    Known limitation: what cuSOLVER takes for single matrices.
    """
    matrices = math.prod(factors.shape[:-2])
    if matrices > 1 and factors.numel():
        for _ in range(2):
            yield from _triangles(matrices, factors.shape[-1])
