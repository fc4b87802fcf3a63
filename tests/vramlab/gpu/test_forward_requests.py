"""What single calls request, in order, and their peaks: as PyTorch 2.13's own CUDA code does.

The numbers are those of the native engine for an A100; `make operators` compares many more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from vramlab.gpu import VirtualGPU
from vramlab.gpu.torch_internals import get_function_mode_stack

F32, BF16, U8, I64 = torch.float32, torch.bfloat16, torch.uint8, torch.int64


def requested(call: Callable[[Tensor], Any], *shape: int, dtype: torch.dtype) -> list[int]:
    """The sizes that a call requests, in order."""
    with VirtualGPU("A100-40GB", on_value="nan"):
        operand = torch.zeros(shape, dtype=dtype, device="cuda")
        torch.cuda.memory._record_memory_history(context=None, stacks="python")
        call(operand)
        traces = torch.cuda.memory._snapshot()["device_traces"]
        torch.cuda.memory._record_memory_history(enabled=None)  # type: ignore[call-overload]
        return [event["size"] for each in traces for event in each if event["action"] == "alloc"]


# 108 multiprocessors, 8 blocks of 256 threads on each (4 of 512), 5 times over: a count of 8 bytes
# for each of 128 digits, and for 512 x 11 more.
COUNTS_OF_2_BYTES = 8 * (108 * 8 * 5 * 128 + 512 * 11)
COUNTS_OF_1_BYTE = 8 * (108 * 4 * 5 * 128 + 512 * 11)


@pytest.mark.filterwarnings("ignore:index_reduce", "ignore:torch.searchsorted")  # once a process
@pytest.mark.parametrize(
    ("call", "shape", "dtype", "sizes"),
    [
        # sorted numbers, their places, places before the sort; whether the last is nan; a result
        (torch.median, (5, 5), F32, [100, 200, 200, 1, 4]),
        (torch.median, (5, 5), I64, [200, 200, 200, 1, 8]),
        (lambda x: x.mode(0), (5, 5), F32, [20, 40, 100]),
        (lambda x: x.mode(1), (5, 5), F32, [20, 40]),
        # the result, both borders, three answers, sums of rows, which are 0, whether any is, and
        # whether none is; noise
        (
            lambda x: x.multinomial(1),
            (4, 6),
            F32,
            [32, 4, 4, 1, 1, 1, 16, 4, 1, 1, 96],
        ),
        (lambda x: x.multinomial(3), (4, 6), F32, [96, 4, 4, 1, 1, 1, 16, 4, 1, 1, 96, 48]),
        (lambda x: x.multinomial(3, replacement=True), (4, 6), F32, [96, 96, 96, 96]),
        (lambda x: x.multinomial(3, replacement=True), (6,), F32, [24, 24, 24, 24, 1023]),
        (lambda x: torch.normal(x, 1.0), (4, 6), F32, [96, 96]),
        (lambda x: torch.normal(x, x), (4, 3), F32, [4, 1, 48, 4, 1]),
        (torch.isinf, (300, 100), F32, [120_000, 30_000]),
        # the other operand; where both are equal, and whether they are everywhere
        (lambda x: torch.equal(x, x + 1), (4, 6), F32, [96, 24, 1]),
        (lambda x: torch.equal(x, x[:2]), (4, 6), F32, []),
        # the other, where they are equal; the difference, allowed and actual; whether it is finite,
        # and small enough; whether they are close everywhere
        (
            lambda x: torch.allclose(x, x + 1),
            (4, 6),
            F32,
            [96, 24, *[96] * 6, *[24] * 4, 1],
        ),
        # where they are equal, where either is NaN, both in the first of these; then as before
        (
            lambda x: torch.isclose(x, x, equal_nan=True),
            (4, 6),
            F32,
            [24, 24, 24, *[96] * 6, *[24] * 4],
        ),
        (lambda x: x.dist(x), (300, 1000), F32, [1_200_000, 4, 148, 4]),
        (torch.histc, (5, 4), F32, [400, 4, 4]),
        (lambda x: torch.ldexp(x, x), (10, 20), F32, [800, 8, 800]),
        (lambda x: torch.mvlgamma(x, 3), (10, 20), F32, [12, 2400, 800]),
        (lambda x: x.any(), (1,), F32, [1, 1]),
        (lambda x: x.any(), (1,), torch.bool, [1]),
        # squares, their sums, ones, twice; rows of 102 numbers; products,
        # for which cuBLAS takes its workspace of 8,320 KiB
        (
            lambda x: torch.cdist(x, x),
            (30, 100),
            F32,
            [12_000, 120, 120, 12_000, 120, 120, 12_000, 12_240, 12_240, 3_600, 8320 * 1024],
        ),
        (lambda x: x.renorm(2, 0, 1.0), (300, 100), F32, [120_000, 1_200]),
        (lambda x: torch.linalg.vander(x), (10, 20), F32, [15_200, 15_200, 800, 16_000]),
        # runs of one row take a scan's storage
        (lambda x: x.cumprod(0), (300_000,), F32, [1_200_000, 2047]),
        (lambda x: x.logcumsumexp(0), (300_000,), F32, [1_200_000, 2047]),
        # 100,000 numbers in parts of 256 x 4: 98 blocks a row
        (
            lambda x: x.topk(5),
            (3, 100_000),
            BF16,
            [30, 120, 6, 24, 24, 3 * 98 * 512, 3072, 3 * 98 * 4, 3 * 98 * 4, 1279, 1279],
        ),
        (lambda x: x.topk(5), (300, 1000), F32, [6000, 12_000]),
        # keys and values between passes (two digits of 7 bits in a byte, three in two)
        (
            torch.sort,
            (100_096,),
            BF16,
            [200_192, 800_768, 800_768, COUNTS_OF_2_BYTES + 200_192 + 800_768 + 255],
        ),
        (
            torch.sort,
            (100_096,),
            U8,
            [100_096, 800_768, 800_768, COUNTS_OF_1_BYTE + 100_096 + 800_768 + 255],
        ),
        # whether each of 200 is among 2: 400 answers, and one for each
        (lambda x: torch.isin(x, x[0, :2]), (10, 20), F32, [200, 400, 200]),
        (lambda x: torch.equal(x, x), (10, 20), F32, [200, 1]),
        (torch.bernoulli, (10, 20), BF16, [400, 800]),
        (torch.nanmedian, (5, 5), F32, [100, 200, 200, 25, 8, 200, 8, 4, 8, 4]),
        # sums of repeats, a scan's storage, the 10 results
        (
            lambda x: torch.repeat_interleave(x, output_size=10),
            (4,),
            I64,
            [32, 1279, 80],
        ),
        (torch.bincount, (500,), I64, [8, 8, 8]),
        # sorted numbers, the results as large as they can be, their count, CUB's storage
        (torch.unique, (4,), I64, [32, 1, 32, 8, 1023]),
        (
            lambda x: torch.unique(x, return_inverse=True),
            (4,),
            I64,
            [32, 32, 32, 1, 32, 32, 1023, 32, 8, 1023],
        ),
        (lambda x: torch.unique(x, return_counts=True), (4,), I64, [32, 1, 32, 8, 32, 1023]),
        (torch.unique, (10,), torch.bool, [4, 1, 2, 16]),
        # 5,000,000 numbers in tiles of 1,920, 8 bytes for each and for 32 more
        (torch.unique_consecutive, (5_000_000,), I64, [40_000_000, 8, 21_759]),
        (lambda x: torch.nn.functional.one_hot(x, 10), (4,), I64, [320]),
        # two pointers for each of 7 triangles; a loop over one that is large takes none
        (lambda x: torch.linalg.solve_triangular(x, x, upper=True), (7, 5, 5), F32, [700, 56, 56]),
        (lambda x: torch.linalg.solve_triangular(x, x, upper=True), (64, 64), F32, [16_384]),
        # three factors; both in one, 35 pivots, 7 statuses, 7 pointers; the order of 5 rows, and 7
        # times
        (torch.linalg.lu, (7, 5, 5), F32, [700, 700, 700, 700, 140, 28, 56, 40, 280]),
        # 5 places in two dimensions; 120,000 elements in blocks of 8,192
        (lambda x: torch.nonzero_static(x, size=5), (300, 400), F32, [80, 60, 120]),
        (
            lambda x: x.scatter_reduce(0, x.to(I64), x, "mean"),
            (100, 200),
            F32,
            [160_000, 80_000, 80_000, 80_000, 20_000],
        ),
        (
            lambda x: x.scatter_reduce(0, x.to(I64), x, "sum"),
            (100, 200),
            F32,
            [160_000, 80_000],
        ),
        (
            lambda x: x.index_reduce(0, x[:, 0].to(I64), x, "mean"),
            (100, 200),
            F32,
            [800, 80_000, 80_000, 80_000, 20_000],
        ),
        (lambda x: x.masked_scatter(x > 0, x), (100, 200), F32, [20_000, 80_000, 160_000, 1535]),
        # places of 1,000 rows, copies and where 256 x 8 begin to merge; 16 bytes for each of
        # 2 tiles of 640 and of 32 more, with their number; one row
        (
            lambda x: torch.unique(x, dim=0),
            (1000, 3),
            F32,
            [8000, 8192 + 256 + 255, 2 * 255 + 768 + 256 + 1, 12],
        ),
        # the input with its columns first; places, their sort; numbers of the runs, and of each
        # column; differences, a scan's storage; numbers in order; counts; differences, a column
        (
            lambda x: torch.unique(x, dim=1, return_inverse=True, return_counts=True),
            (3, 1000),
            F32,
            [12_000, 8000, 8703, 8000, 8000, 255, 1279, 8008, 1535, 8, 255, 12],
        ),
        # strides, quotients; sizes, remainders
        (lambda x: torch.unravel_index(x, (10, 20)), (7,), I64, [16, 112, 16, 112]),
        # as int64, and the squares
        (torch.square, (4, 8, 5), torch.bool, [1280, 1280]),
        (lambda x: x**2.5, (10,), I64, [40, 40]),
        # two copies before; the places, the sequence as it lies, and as float64
        (
            lambda x: torch.searchsorted(x.mT.contiguous().mT, x.double()),
            (5, 10),
            F32,
            [200, 400, 400, 200, 400],
        ),
        # the sorter; its smallest and largest place
        (lambda x: torch.searchsorted(x, x, sorter=x.to(I64)), (5, 10), F32, [400, 8, 8, 400]),
        # lengths; two sums; a zero, three offsets, a scan's storage, a reduction's
        (
            lambda x: torch.segment_reduce(
                x, "sum", lengths=torch.tensor([3, 7]).cuda(), unsafe=True
            ),
            (10,),
            F32,
            [16, 8, 8, 24, 1279, 1],
        ),
        # offsets; two rows of 4; two lengths
        (
            lambda x: torch.segment_reduce(
                x, "max", offsets=torch.tensor([0, 3, 10]).cuda(), unsafe=True
            ),
            (10, 4),
            F32,
            [24, 32, 16],
        ),
        # the result, factors, pivots, statuses, pointers; products; rows in order, which are
        # exchanged, how many, the same as int64
        (torch.linalg.det, (3, 5, 5), F32, [12, 300, 60, 12, 24, 12, 20, 15, 24, 120]),
        # two results, and as before; signs of the diagonal, their product, the diagonal without
        (
            torch.linalg.slogdet,
            (3, 5, 5),
            F32,
            [12, 12, 300, 60, 12, 24, 20, 15, 24, 120, 60, 12, 60],
        ),
        # a copy of the factors, and two pointers for each, twice
        (torch.cholesky_inverse, (3, 5, 5), F32, [300, 300, 24, 24, 24, 24]),
        (lambda x: torch.cholesky_solve(x, x), (3, 5, 5), F32, [300, 24, 24, 24, 24]),
        # factors, pivots, statuses, pointers; pivots in order; whether any status is an error
        (
            lambda x: torch.linalg.lu_factor(x, pivot=False),
            (3, 5, 5),
            F32,
            [300, 60, 12, 24, 20, 1],
        ),
        (torch.linalg.lu_factor, (3, 5, 6), F32, [360, 60, 12, 1]),
        # the solution, the triangle of 5 of 7 columns, pointers
        (
            lambda x: torch.linalg.solve_triangular(x[:, :5], x, upper=True),
            (5, 7),
            F32,
            [140, 100, 8, 8],
        ),
        (torch.linalg.pinv, (0, 3), F32, [8, 8]),  # tolerances in float64
        # the other rows for each of 6
        (lambda x: torch.cdist(x, x[:1], p=1.0), (6, 5, 4), F32, [480, 600]),
        # two tensors of 5 rows, filled up to 6
        (lambda x: torch._chunk_cat([x.mT, x.mT], 0, 2), (3, 5), F32, [72, 72, 144]),
        (lambda x: x.sum().cumsum_(0), (3,), F32, [4, 4]),
        (lambda x: x.mvlgamma_(3), (10, 20), F32, [12, 2400, 800]),
        # converted on the GPU, unless it may block; a part is made contiguous there
        (lambda x: x.to("cpu", torch.float64, non_blocking=True), (5, 6), F32, [240]),
        (lambda x: x.to("cpu", torch.float64), (5, 6), F32, []),
        (lambda x: x[:, ::2].cpu(), (5, 6), F32, [60]),
        # ones; how many, places in two dimensions, a copy of them; values, and a copy
        (lambda x: (x + 1).to_sparse(), (5, 5), F32, [100, 4, 1, 400, 1023, 400, 100, 100]),
        # rows instead of places: 25, their sort and selection, 5 that are different
        (
            lambda x: (x + 1).to_sparse(1),
            (5, 5),
            F32,
            [100, 4, 1, 400, 1023, 200, 767, 1535, 40, 100, 100],
        ),
        # labels, logarithms, loss and its weight; weighted, their sums, negative; which labels are
        # ignored, and not; how many, selected; their weights, both sums, a quotient; the loss
        (
            lambda x: functional.cross_entropy(x, x[:, 0].long(), x[0], label_smoothing=0.1),
            (8, 5),
            F32,
            [64, 160, 4, 4, 160, 32, 32, 8, 8, 4, 1, 64, 1023, 64, 32, 4, 4, 4, 4, 4, 4],
        ),
    ],
)
def test_requests_are_those_of_pytorch(
    call: Callable[[Tensor], Any], shape: tuple[int, ...], dtype: torch.dtype, sizes: list[int]
) -> None:
    assert requested(call, *shape, dtype=dtype) == sizes


def test_a_random_order_is_a_sort_of_random_keys() -> None:
    # 100,000 numbers get keys of 36 bits, in 8 bytes; 10 get keys of 9 bits, in 4
    assert requested(lambda _: torch.randperm(100_000, device="cuda"), 1, dtype=F32) == [
        800_000,
        8,
        800_000,
        800_000,
        800_000,
        1_638_399,
    ]
    few = requested(lambda _: torch.randperm(10, device="cuda"), 1, dtype=F32)
    assert few == [80, 8, 80, 40, 40, 1]


def test_copies_that_the_range_of_indices_takes_are_freed() -> None:
    with VirtualGPU("A100-40GB"):
        places = torch.arange(64, device="cuda")
        sums, values = torch.zeros(64, 64, device="cuda"), torch.ones(64, 64, device="cuda")
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        sums.index_put_((places[:, None], places), values, accumulate=True)
        # the linear index of 64 x 64 places, sorted, the places before, and in order; CUB's
        # storage of 72,191 bytes, rounded up: contiguous copies of both indices are gone
        assert torch.cuda.max_memory_allocated() - before == 4 * 8 * 64 * 64 + 72_192


def test_functions_that_ask_where_a_tensor_is_hear_of_the_gpu() -> None:
    with VirtualGPU("A100-40GB"):
        places = torch.arange(6, device="cuda")
        rows, columns = torch.unravel_index(places, (2, 3))
        assert {rows.device, columns.device} == {torch.device("cuda:0")}
        assert (rows.tolist(), columns.tolist()) == ([0, 0, 0, 1, 1, 1], [0, 1, 2, 0, 1, 2])
        assert len(get_function_mode_stack()) == 1
        with pytest.raises(TypeError, match="integer"):
            torch.unravel_index(places.float(), (2, 3))
        assert len(get_function_mode_stack()) == 1


def test_looking_for_many_numbers_frees_the_unique_ones() -> None:
    with VirtualGPU("A100-40GB"):
        few, many = torch.arange(128.0).cuda(), torch.arange(1280.0).cuda()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        torch.isin(few, many)
        # in units of 512 bytes: the result (1), places of the few (2), both together (11), sorted
        # (11), their places (22) and those within the sort (22); not both alone (1 and 10)
        assert torch.cuda.max_memory_allocated() - before == (1 + 2 + 11 + 11 + 22 + 22) * 512
