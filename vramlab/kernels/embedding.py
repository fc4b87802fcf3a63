"""Rules of embeddings; for the weight's gradient, tokens are sorted and the rows of each summed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from vramlab.cuda_rules.cub import key_bits, radix_sort_bytes, scan_bytes, unique_by_key_bytes
from vramlab.cuda_rules.rounding import ceil_div, round_up
from vramlab.kernels.calls import BF16, F32, I64, Ids, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.operands import contiguous, flat_stride, nbytes, opmath_bytes
from vramlab.kernels.registry import OUTPUTS, Call, Give, KernelContext, Step, Take, rule

_ONE_KERNEL_UP_TO = 3072  # indices
_ROWS_PER_THREAD = 10
_FUSED_SINCE = (2, 11)
_SORTS_BY_USED_BITS = (2, 13)
_FUSED_BLOCKS_PER_MULTIPROCESSOR = 4
_MOST_THREADS = 1024
_WARP = 32


@rule(
    "aten.embedding.default",
    takes="a copy of indices that are no row of numbers, such as expanded ones",
    source="aten/src/ATen/native/Embedding.cpp, PyTorch 2.13",
)
def embedding(
    call: Call, weight: Tensor, indices: Tensor, *_: object, **__: object
) -> Iterable[Step]:
    if flat_stride(indices) is None:
        yield Take(nbytes(indices), "indices as a row")
    yield OUTPUTS


def partial_rows(index_count: int, weight_rows: int) -> int:
    """Count the rows of partial sums there can be: one per token, and one per 10 repetitions."""
    return index_count // _ROWS_PER_THREAD + min(index_count, weight_rows)


@rule(
    "aten.embedding_dense_backward.default",
    takes="beyond 3072 indices: sorted indices and their places, the sort's storage, and a float32 "
    "row for each different token and for each 10 indices; of few tokens, a place for each of "
    "those rows, and the gradient in float32 if it is not",
    source="aten/src/ATen/native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu, PyTorch 2.13",
)
def embedding_dense_backward(
    call: Call,
    grad_output: Tensor,
    indices: Tensor,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> Iterable[Step]:
    """Add each token's gradients at once if there are few, else sort them by token before.

    Known limitation: the storage of the two scans of `scale_grad_by_freq` is not counted.
    """
    count, width, index_bytes = indices.numel(), grad_output.shape[-1], indices.element_size()
    model = call.context.model
    yield from contiguous(indices, "the indices")
    yield from contiguous(grad_output, "the gradient")
    if count <= _ONE_KERNEL_UP_TO and not scale_grad_by_freq:
        yield OUTPUTS
        return

    yield Take(count * index_bytes, "sorted indices")
    yield Take(count * index_bytes, "their places before")
    yield Take(count * index_bytes, "places in order")
    # It makes a pass for each 8 bits, and the first one that is not the last needs copies.
    bits = key_bits(num_weights) if call.context.torch_version >= _SORTS_BY_USED_BITS else None
    sort_bytes = radix_sort_bytes(count, index_bytes, index_bytes, model, bits)
    yield Take(sort_bytes, "storage of the sort")
    yield Give("storage of the sort")
    yield Give("places in order")
    if scale_grad_by_freq:
        yield Take(count * index_bytes, "how often each index is there")

    yield OUTPUTS
    yield Take(count * index_bytes, "where each token begins")
    yield Take(8, "number of tokens")
    yield Take(count * index_bytes, "different tokens")
    yield Take(unique_by_key_bytes(count, model), "storage of the selection")
    yield Give("storage of the selection")
    yield Give("different tokens")

    tokens = min(count, num_weights)
    yield Take(tokens * index_bytes, "partial sums of each token")
    yield Take(tokens * index_bytes, "where they begin")
    yield Take(scan_bytes(tokens, index_bytes), "storage of the scan")
    yield Give("storage of the scan")
    yield Take(8, "number of partial sums")
    rows = partial_rows(count, num_weights)
    yield Take(rows * index_bytes, "indices of each partial sum")
    accumulated_bytes = opmath_bytes(grad_output.dtype)
    if not _adds_at_once(call.context, tokens, rows, width):
        yield Take(rows * width * accumulated_bytes, "partial sums")
        return
    yield Take(rows * index_bytes, "token of each partial sum")
    if grad_output.element_size() != accumulated_bytes:
        yield Take(num_weights * width * accumulated_bytes, "sums")


def _adds_at_once(context: KernelContext, tokens: int, rows: int, width: int) -> bool:
    """Tell whether one kernel adds all partial sums to the result: few tokens with many rows each.

    Source: the heuristic in EmbeddingBackwardKernel.cu, PyTorch 2.13; a recording has it in 2.11.
    """
    threads_of_row = round_up(width, _WARP)
    blocks = ceil_div(tokens * threads_of_row, min(threads_of_row, _MOST_THREADS))
    return (
        context.torch_version >= _FUSED_SINCE
        and blocks < context.model.multiprocessors * _FUSED_BLOCKS_PER_MULTIPROCESSOR
        and rows > 4 * blocks
        and not torch.are_deterministic_algorithms_enabled()
    )


# Calls that ask a real GPU.


@asks("aten.embedding.default")
def _embedding_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for ids in (Ids((4096,), 1000), Ids((32, 128), 1000), zeros(32, 128, dtype=I64)):
            yield op_call(aten.embedding.default, zeros(1000, 768, dtype=dtype), ids)
        for layout in ("expanded", "transposed", "apart"):
            ids = zeros(32, 128, dtype=I64, layout=layout)
            yield op_call(aten.embedding.default, zeros(1000, 768, dtype=dtype), ids)


@asks("aten.embedding_dense_backward.default")
def _embedding_backward_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for count in (1000, 3072, 3073, 4096, 8192, 16384):
            for width in (64, 768):
                gradient = zeros(count, width, dtype=dtype)
                yield op_call(
                    aten.embedding_dense_backward.default,
                    gradient,
                    Ids((count,), 30522),
                    30522,
                    -1,
                    False,
                )
        yield op_call(
            aten.embedding_dense_backward.default,
            zeros(8192, 768, dtype=dtype),
            Ids((8192,), 2),
            2,
            -1,
            False,
        )
