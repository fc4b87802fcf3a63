"""Matrix products: which operands are cloned, in which order, and whose workspace is used."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_events import Events, meta

from vramlab.units import MIB

aten = torch.ops.aten
OUT = ("output", 0)
CUBLAS, CUBLASLT = ("workspace", "CUBLAS"), ("workspace", "CUBLASLT")


def test_document_001_the_expanded_gradient_of_sum_is_cloned(events: Events) -> None:
    gradient = meta().expand(10240, 2048)  # float32: 10240 * 2048 * 4 B = 80 MiB
    expected = [OUT, ("take", 80 * MIB), CUBLAS, ("give", 80 * MIB)]
    assert events(aten.mm.default, gradient, meta(2048, 1024)) == expected
    assert events(aten.mm.default, gradient.t(), meta(10240, 1024)) == expected


def test_with_a_row_major_result_the_right_operand_is_cloned_first(
    takes: Callable[..., list[int]],
) -> None:
    left, right = meta(8, 4, 2)[:, :, 0], meta(4, 16, 2)[:, :, 0]  # every second number
    assert takes(aten.mm.default, left, right) == [4 * 16 * 4, 8 * 4 * 4]
    column_major = meta(16, 8).t()
    assert takes(aten.mm.out, left, right, out=column_major) == [8 * 4 * 4, 4 * 16 * 4]


def test_a_result_that_cublas_cannot_write_is_computed_apart(
    takes: Callable[..., list[int]],
) -> None:
    holes = meta(8, 16, 2)[:, :, 0]
    assert takes(aten.mm.out, meta(8, 4), meta(4, 16), out=holes) == [8 * 16 * 4]


@pytest.mark.parametrize("shape", [(1, 32), (32, 1), (1, 1)])
def test_a_single_row_or_column_is_always_readable(events: Events, shape: tuple[int, int]) -> None:
    rows, columns = shape
    assert events(aten.mm.default, meta(rows, columns), meta(columns, 8)) == [OUT, CUBLAS]


def test_empty_products_use_no_library(events: Events) -> None:
    assert events(aten.mm.default, meta(0, 4), meta(4, 8)) == [OUT]
    assert events(aten.mm.default, meta(8, 0), meta(0, 8)) == [OUT]


LINEAR = (meta(16), meta(8, 4), meta(16, 4).t())  # bias, input, weight.t()


@pytest.mark.parametrize(
    ("version", "library"),
    [
        ((2, 10), CUBLAS),
        ((2, 11), CUBLASLT),
        ((2, 12), CUBLAS),
        ((2, 14), CUBLAS),
        ((2, 15), CUBLASLT),
    ],
)
def test_one_row_of_input_is_handed_to_cublaslt_in_some_versions(
    events: Events, version: tuple[int, int], library: tuple[str, str]
) -> None:
    """2.11 by a recording of an H200, 2.12 by the source, others by the native engine."""
    one_row = (LINEAR[0], meta(1, 4), LINEAR[2])
    assert events(aten.addmm.default, *one_row, version=version) == [OUT, library]


def test_cublaslt_can_be_switched_off(events: Events) -> None:
    off = {"DISABLE_ADDMM_CUDA_LT": "1"}
    assert events(aten.addmm.default, *LINEAR, environment=off) == [OUT, CUBLAS]


def test_a_batch_of_expanded_matrices_is_cloned(events: Events) -> None:
    gradient = meta().expand(24, 128, 128)  # 24 * 128 * 128 * 4 B
    expected = [OUT, ("take", 1_572_864), CUBLAS, ("give", 1_572_864)]
    assert events(aten.bmm.default, gradient, meta(24, 128, 64)) == expected
    assert events(aten.baddbmm.default, meta(24, 128, 64), gradient, meta(24, 128, 64)) == expected


def test_one_matrix_for_the_whole_batch_is_read_in_place(events: Events) -> None:
    shared = meta(1, 64, 32).expand(24, 64, 32)
    assert events(aten.bmm.default, meta(24, 128, 64), shared) == [OUT, CUBLAS]


def test_empty_batches_use_no_library(events: Events) -> None:
    assert events(aten.bmm.default, meta(0, 4, 4), meta(0, 4, 4)) == [OUT]
    assert events(aten.bmm.default, meta(2, 4, 0), meta(2, 0, 4)) == [OUT]


def added_matrix(
    dtype: torch.dtype = torch.float16, rows: int = 64, columns: int = 32, inner: int = 16
) -> tuple[torch.Tensor, ...]:
    """The matrix, and the two whose product it is added to."""
    sizes = ((rows, columns), (rows, inner), (inner, columns))
    return tuple(meta(*size, dtype=dtype) for size in sizes)


@pytest.mark.parametrize(
    ("version", "arguments", "options", "library"),
    [
        ((2, 15), added_matrix(), {}, CUBLASLT),
        ((2, 15), added_matrix(), {"beta": 2, "alpha": 2}, CUBLASLT),
        ((2, 15), added_matrix(), {"beta": 0}, CUBLAS),  # the matrix is not read
        ((2, 15), added_matrix(torch.bfloat16, rows=2), {}, CUBLASLT),
        ((2, 15), added_matrix(torch.float32), {}, CUBLAS),
        ((2, 15), added_matrix(inner=1), {}, CUBLAS),
        ((2, 15), added_matrix(columns=1), {}, CUBLAS),
        ((2, 15), (meta(32, 64, dtype=torch.float16).t(), *added_matrix()[1:]), {}, CUBLAS),
        ((2, 15), (meta(64, 1, dtype=torch.float16), *added_matrix()[1:]), {}, CUBLAS),
        ((2, 15), (meta(64, 96, dtype=torch.float16)[:, :32], *added_matrix()[1:]), {}, CUBLASLT),
        ((2, 14), added_matrix(), {}, CUBLAS),
    ],
)
def test_a_matrix_of_halves_is_added_by_cublaslt_from_2_15_on(
    events: Events,
    version: tuple[int, int],
    arguments: tuple[torch.Tensor, ...],
    options: dict[str, int],
    library: tuple[str, str],
) -> None:
    assert events(aten.addmm.default, *arguments, version=version, **options) == [OUT, library]


def test_a_result_in_place_is_no_matrix_that_cublaslt_adds(events: Events) -> None:
    assert events(aten.addmm_.default, *added_matrix(), version=(2, 15)) == [OUT, CUBLAS]


def test_products_of_a_batch_are_added_one_after_the_other(events: Events) -> None:
    """3 matrices of 64 rows of 16 float32, every second number: 64 * 16 * 4 = 4,096 B each."""
    left, right = meta(3, 64, 32)[:, :, ::2], meta(3, 16, 32)
    each = [("take", 4096), CUBLAS, ("give", 4096)]
    assert events(aten.addbmm.default, meta(64, 32), left, right) == [OUT, *3 * each]
