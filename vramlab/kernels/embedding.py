"""Rules of embeddings; for the weight's gradient, tokens are sorted and the rows of each summed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from vramlab.cuda_rules.cub import key_bits, radix_sort_bytes, scan_bytes, unique_by_key_bytes
from vramlab.cuda_rules.rounding import ceil_div, round_up
from vramlab.kernels.rule_table.calls import BF16, F32, I64, Ids, OpCall, asks, aten, op_call, zeros
from vramlab.kernels.rule_table.operands import contiguous, flat_stride, nbytes, opmath_bytes
from vramlab.kernels.rule_table.registry import (
    OUTPUTS,
    Call,
    Give,
    KernelContext,
    Output,
    Status,
    Step,
    Take,
    rule,
)

_ONE_KERNEL_UP_TO = 3072  # indices
_ROWS_PER_THREAD = 10
_FUSED_SINCE = (2, 11)
_SORTS_BY_USED_BITS = (2, 13)
_FUSED_BLOCKS_PER_MULTIPROCESSOR = 4
_MOST_THREADS = 1024
_WARP = 32
_LARGEST = 2
"""The mode of bags that take the largest number."""


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
    """Add each token's gradients at once if there are few, else sort them by token before."""
    yield from contiguous(indices, "the indices")
    yield from contiguous(grad_output, "the gradient")
    if indices.numel() <= _ONE_KERNEL_UP_TO and not scale_grad_by_freq:
        yield OUTPUTS
        return
    yield from _sums_by_token(call, grad_output, indices, num_weights, scale_grad_by_freq)


@rule(
    "aten._embedding_bag_dense_backward.default",
    takes="as embedding_dense_backward of many indices; of the largest, nothing",
    source="aten/src/ATen/native/cuda/EmbeddingBag.cu and EmbeddingBackwardKernel.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def embedding_bag_dense_backward(
    call: Call,
    grad: Tensor,
    indices: Tensor,
    offset2bag: Tensor,
    bag_size: Tensor,
    maximum_indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    mode: int,
    *_: object,
) -> Iterable[Step]:
    yield from contiguous(grad, "the gradient")
    if mode == _LARGEST or not indices.numel():
        yield OUTPUTS
        return
    yield from contiguous(indices, "the indices")
    yield from _sums_by_token(call, grad, indices, num_weights, scale_grad_by_freq, of_bags=True)


@rule(
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    takes="nothing; bags' sizes and which index belongs to which come before the result",
    source="aten/src/ATen/native/cuda/EmbeddingBag.cu, PyTorch 2.13",
    status=Status.FROM_SOURCE,
)
def embedding_bag(call: Call, *_: object, **__: object) -> Iterable[Step]:
    yield Output(2)
    yield Output(1)
    yield OUTPUTS


def _sums_by_token(
    call: Call,
    gradient: Tensor,
    indices: Tensor,
    num_weights: int,
    scale_grad_by_freq: bool,
    *,
    of_bags: bool = False,
) -> Iterator[Step]:
    """Sort indices, and sum the rows of each token in parts; those of bags never at once."""
    width = gradient.shape[-1]
    count, index_bytes = indices.numel(), indices.element_size()
    model = call.context.model
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
        for _direction in range(2):
            yield Take(scan_bytes(count, index_bytes), "storage of a scan")
            yield Give("storage of a scan")

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
    accumulated_bytes = opmath_bytes(gradient.dtype)
    if of_bags or not _adds_at_once(call.context, tokens, rows, width):
        yield Take(rows * width * accumulated_bytes, "partial sums")
        return
    yield Take(rows * index_bytes, "token of each partial sum")
    if gradient.element_size() != accumulated_bytes:
        yield Take(num_weights * width * accumulated_bytes, "sums")


def _adds_at_once(context: KernelContext, tokens: int, rows: int, width: int) -> bool:
    """Return whether one kernel adds all partial sums: few tokens with many rows each.

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
