"""Rules of scaled dot-product attention: flash and memory-efficient kernels, both ways.

Shapes: B batch, H heads, G heads of keys and values, M queries, N keys, K head size.
The ops get (B, H, M, K); their kernels see (B, M, H, K), a view.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vramlab.cuda_rules.gpu_facts import CudaGpuFacts
from vramlab.cuda_rules.rounding import ceil_div, round_up
from vramlab.kernels.rule_table.calls import (
    BF16,
    F16,
    F32,
    OpCall,
    Zeros,
    asks,
    aten,
    op_call,
    zeros,
)
from vramlab.kernels.rule_table.operands import nbytes
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

_FLASH_API = "aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp, PyTorch 2.13"
_EFFICIENT = "aten/src/ATen/native/transformers/cuda/mem_eff_attention, PyTorch 2.13"
_MOST_SPLITS = 128
_AMPERE = (8, 0)


def _float32(number: float) -> float:
    """Round as C++'s float does: the heuristic compares such numbers."""
    rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    return rounded


def flash_splits(blocks: int, slots: int, key_blocks: int) -> int:
    """Count the parts into which flash attention splits the keys, to keep a GPU busy.

    Args:
        blocks: of 64 queries, over batch and heads.
        slots: blocks that the GPU can run at once: two on each multiprocessor.
        key_blocks: blocks that the keys are read in.

    Source: num_splits_heuristic in flash_api.cpp, PyTorch 2.13.
    """
    if blocks >= _float32(0.8) * slots:
        return 1
    efficiencies = {}
    for splits in range(1, min(_MOST_SPLITS, slots, key_blocks) + 1):
        if splits == 1 or ceil_div(key_blocks, splits) != ceil_div(key_blocks, splits - 1):
            waves = _float32(blocks * splits / slots)
            efficiencies[splits] = _float32(waves / math.ceil(waves))
    best = max(efficiencies.values(), default=0.0)
    return next((n for n, each in efficiencies.items() if each >= 0.85 * best), 1)


def _flash_head_size(head_size: int) -> int:
    """Return the head size that flash attention's accumulators have room for."""
    return round_up(head_size, 32 if head_size <= 128 else 64)


_STATE_ON_GPU = (2, 7)
"""The first PyTorch whose flash attention has its seed and offset on the GPU, as pytorch#146372
says; Pythia's figures in assets/measurements show that they were on the host in 2.2."""


@rule(
    "aten._scaled_dot_product_flash_attention.default",
    takes="with so few queries that keys are split: a float32 output and logsumexp for each part; "
    "with dropout, 16 B; its seed and offset are on the host up to PyTorch 2.6; refused before "
    "compute capability 8.0",
    source=_FLASH_API,
)
def flash_attention(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    *_: object,
    **__: object,
) -> Iterable[Step]:
    if call.context.model.compute_capability < _AMPERE:
        raise RuntimeError("FlashAttention only supports Ampere GPUs or newer.")
    batch, heads, queries, head_size = query.shape
    key_heads, keys = key.shape[1], key.shape[2]
    yield Output(0)
    yield Output(1)
    if queries == 1 and heads > key_heads and not dropout_p:
        queries, heads = heads // key_heads, key_heads  # grouped heads are taken for queries
    if not dropout_p:
        keys_per_block = 256 if head_size <= 64 else 128 if head_size <= 128 else 64
        splits = flash_splits(
            batch * heads * ceil_div(queries, 64),
            2 * call.context.model.multiprocessors,
            ceil_div(keys, keys_per_block),
        )
        if splits > 1:
            rows = splits * batch * heads * queries
            yield Take(4 * rows, "logsumexp of each part")
            yield Take(4 * rows * _flash_head_size(head_size), "output of each part")
    is_on_host = call.context.torch_version < _STATE_ON_GPU and not call.context.is_capturing()
    if is_on_host:
        seed, offset = len(call.outputs) - 3, len(call.outputs) - 2
        yield from (Output(seed, storage_bytes=0), Output(offset, storage_bytes=0))
    yield OUTPUTS
    yield Give("logsumexp of each part")
    if dropout_p and not is_on_host:
        yield Take(16, "state of the random numbers")


@rule(
    "aten._scaled_dot_product_flash_attention_backward.default",
    takes="a float32 accumulator of the query's gradient and a float32 for each query, queries "
    "rounded up to 128 and head size to 32 (above 128, to 64); full gradients of keys and values "
    "where heads share",
    source=_FLASH_API,
)
def flash_attention_backward(
    call: Call,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    *_: object,
    **__: object,
) -> Iterable[Step]:
    batch, heads, queries, head_size = query.shape
    key_heads, keys = key.shape[1], key.shape[2]
    yield from _contiguous_by_query(grad_out, "the gradient")
    yield from _contiguous_by_query(out, "the output")
    yield OUTPUTS
    rows = batch * heads * round_up(queries, 128)
    yield Take(4 * rows, "sums of gradient times output")
    parts = 1
    if torch.are_deterministic_algorithms_enabled():
        parts = ceil_div(call.context.model.multiprocessors, batch * heads)
    yield Take(4 * parts * rows * _flash_head_size(head_size), "gradient of the query")
    if key_heads != heads:
        expanded_bytes = batch * keys * heads * head_size * key.element_size()
        yield Take(expanded_bytes, "gradient of each head's keys")
        yield Take(expanded_bytes, "gradient of each head's values")


def _contiguous_by_query(tensor: Tensor, what: str) -> Iterator[Step]:
    """Yield the copy of (B, H, M, K) that makes its (B, M, H, K) view contiguous."""
    expected = 1
    batch, heads, rows, columns = tensor.shape
    strides = tensor.stride()
    for size, stride in (
        (columns, strides[3]),
        (heads, strides[1]),
        (rows, strides[2]),
        (batch, strides[0]),
    ):
        if size != 1 and stride != expected:
            yield Take(nbytes(tensor), f"contiguous copy of {what}")
            return
        expected *= size


_CUDNN_WORKSPACE = "cuDNN's workspace"
_CUDNN_WORKSPACE_BYTES = 256
_HOPPER = (9, 0)


@rule(
    "aten._scaled_dot_product_cudnn_attention.default",
    takes="its seed and offset before the rest; no logsumexp unless a backward pass may follow; on "
    "capability 9.0, 256 B of cuDNN's workspace for more than one query",
    source="aten/src/ATen/native/transformers/cuda/attention.cu, PyTorch 2.13, and the recording "
    "h200-torch2.11.0.json",
    status=Status.FROM_SOURCE,
)
def cudnn_attention(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    *_: object,
    **__: object,
) -> Iterable[Step]:
    """Yield what was recorded, and what cuDNN 9.19 to 9.26 answer; for other GPUs they vary."""
    seed, offset = len(call.outputs) - 3, len(call.outputs) - 2
    yield from (Output(seed), Output(offset), Output(0))
    yield Output(1) if compute_log_sumexp else Output(1, storage_bytes=0)
    yield OUTPUTS
    if call.context.model.compute_capability == _HOPPER and query.shape[2] > 1:
        yield Take(_CUDNN_WORKSPACE_BYTES, _CUDNN_WORKSPACE)


@rule(
    "aten._scaled_dot_product_cudnn_attention_backward.default",
    takes="on capability 9.0, cuDNN's workspace: the query's gradient in float32, a float32 for "
    "each query, full gradients of keys and values where heads share, and 256 B",
    source="cuDNN 9.19 to 9.26 on the native engine, PyTorch 2.11 to 2.15",
    status=Status.FROM_SOURCE,
)
def cudnn_attention_backward(
    call: Call,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *_: object,
    **__: object,
) -> Iterable[Step]:
    yield OUTPUTS
    if call.context.model.compute_capability != _HOPPER:
        return
    batch, heads, queries, head_size = query.shape
    workspace_bytes = 4 * batch * heads * queries * (head_size + 1) + _CUDNN_WORKSPACE_BYTES
    if not key.shape[1] == value.shape[1] == heads:
        keys, width = key.shape[2], key.shape[3] + value.shape[3]
        workspace_bytes += batch * heads * keys * width * key.element_size()
    yield Take(workspace_bytes, _CUDNN_WORKSPACE)


_SEED_ON_GPU = (2, 14)
"""The first PyTorch whose memory-efficient kernels have them there without dropout, which reads
neither; as the native engine shows it for 2.14.1 and 2.15.0."""


@rule(
    "aten._scaled_dot_product_efficient_attention.default",
    takes="a float32 output if the head size is above 128 and inputs are 16-bit; its seed and "
    "offset are on the host up to PyTorch 2.13, and later with dropout, unless a CUDA graph is "
    "captured; bfloat16 is refused before compute capability 8.0",
    source=_EFFICIENT + "/kernel_forward.h and attention.cu beside it",
)
def efficient_attention(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    *_: object,
    **__: object,
) -> Iterable[Step]:
    is_on_gpu = call.context.torch_version >= _SEED_ON_GPU and dropout_p == 0
    if query.dtype == torch.bfloat16 and call.context.model.compute_capability < _AMPERE:
        if is_on_gpu:
            yield from (Take(8, "seed"), Take(8, "offset"))
        raise RuntimeError("cutlassF: no kernel found to launch!")
    if attn_bias is not None and attn_bias.dtype != query.dtype:
        raise RuntimeError("invalid dtype for bias - should match query's dtype")
    if is_on_gpu or call.context.is_capturing():
        yield from (Output(2), Output(3), Output(0))
    else:
        yield from (Output(0), Output(2, storage_bytes=0), Output(3, storage_bytes=0))
    yield Output(1)
    if max(query.shape[-1], value.shape[-1]) > 128 and query.element_size() == 2:
        output_numel = query.shape[0] * query.shape[1] * query.shape[2] * value.shape[-1]
        yield Take(4 * output_numel, "output in float32")


@rule(
    "aten._efficient_attention_forward.default",
    takes="the same",
    source=_EFFICIENT + "/kernel_forward.h and attention.cu beside it",
    status=Status.FROM_SOURCE,
)
def efficient_attention_by_query(
    call: Call,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    *_: object,
    **__: object,
) -> Iterable[Step]:
    """Yield the steps of the kernel that both ops call, here with queries before heads."""
    query, key, value = (each.transpose(1, 2) for each in (query, key, value))
    return efficient_attention(call, query, key, value, bias, True, dropout_p)


_ROOMY = ((8, 0), (8, 7), (9, 0), (10, 0), (10, 3), (11, 0))
"""Capabilities with at least 163 KiB of shared memory for a block of threads."""
_BEFORE_AMPERE = ((7, 0), (7, 5))
_OF_96 = ((8, 6), (8, 9))
"""Those for which there is a kernel made for head sizes up to 96, without dropout."""


def efficient_backward_blocks(
    head_size: int, dtype: torch.dtype, model: CudaGpuFacts, dropout: float = 0.0
) -> tuple[int, int, int]:
    """Choose the kernel: queries and keys in a block, and the head size it is made for.

    Above a head size of 64 the kernel with larger blocks is taken if it fits into shared memory.
    Where it does is what PyTorch's own code chose on the native engine: for 7.0 that of 2.8, for
    7.5, 8.0, 8.6, 8.9, 9.0 and 10.0 that of 2.13; 8.7, 10.3 and 11.0, with as much shared memory,
    are taken to be as 8.0, others as 8.9, but for its kernel for 96.

    Source: kernels/cutlassB.h, PyTorch 2.13.
    """
    if head_size <= 64:
        return 64, 64, 32 if head_size <= 32 else 64
    half, capability = dtype != torch.float32, model.compute_capability
    made_for = 128 if head_size <= 128 else 65536
    if capability in _ROOMY:
        return 128, 128 if half and made_for == 128 else 64, made_for
    if half and head_size <= 96 and not dropout and capability in _OF_96:
        return 128, 64, 96
    fits = half and (made_for == 65536 or capability in _BEFORE_AMPERE)
    return 128 if fits else 64, 64, made_for


@rule(
    "aten._scaled_dot_product_efficient_attention_backward.default",
    takes="a copy of a gradient that is not contiguous by query; the query's gradient in float32 "
    "blocks, each with a lock; for float32 the product of output and its gradient; a float32 for "
    "each query; full gradients of keys and values where heads share",
    source=_EFFICIENT + "/kernel_backward.h and attention_backward.cu beside it",
)
def efficient_attention_backward(
    call: Call,
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    *_: object,
    **__: object,
) -> Iterable[Step]:
    batch, heads, queries, head_size = query.shape
    keys, value_size = key.shape[2], value.shape[3]
    half = query.element_size() == 2
    model = call.context.model
    block_queries, block_keys, made_for = efficient_backward_blocks(
        max(head_size, value_size), query.dtype, model, dropout_p
    )
    in_registers = half and made_for <= block_queries
    before_turing = model.compute_capability < (7, 5)

    yield from _contiguous_by_query(grad_out, "the gradient")
    yield OUTPUTS
    if key.shape[1] != heads:
        for each, what in ((key, "keys"), (value, "values")):
            expanded_bytes = batch * keys * heads * each.shape[3] * each.element_size()
            yield Take(expanded_bytes, f"gradient of each head's {what}")
    row_bytes = 4 * batch * heads * queries
    if half and (in_registers or not before_turing):
        yield Take(row_bytes, "sums of gradient times output")
    else:
        if half:
            yield Take(2 * nbytes(grad_out), "gradient in float32")
            yield Take(2 * nbytes(out), "output in float32")
        yield Take(row_bytes * value_size, "gradient times output")
        yield Take(row_bytes, "its sums")
        if heads > 1 and queries > 1:
            yield Take(row_bytes, "sums of gradient times output")
            yield Give("its sums")
        yield Give("gradient times output")
        yield Give("output in float32")
        yield Give("gradient in float32")

    blocks = ceil_div(queries, block_queries) * ceil_div(head_size, block_keys)
    workspace_numel = blocks * (4 + block_queries * block_keys)  # a lock, a counter, padding
    if half and not in_registers:
        splits = _key_splits(batch * heads, ceil_div(keys, block_keys))
        for size in (head_size, value_size):
            workspace_numel += splits * block_keys * round_up(size, block_queries)
    yield Take(4 * batch * heads * round_up(workspace_numel, 4), "workspace")
    yield Give("sums of gradient times output")
    yield Give("its sums")


@rule(
    "aten._efficient_attention_backward.default",
    takes="the same",
    source=_EFFICIENT + "/kernel_backward.h and attention_backward.cu beside it",
    status=Status.FROM_SOURCE,
)
def efficient_attention_backward_by_query(call: Call, *args: Any, **_: object) -> Iterable[Step]:
    """Yield the steps of the kernel that both ops call, here with queries before heads."""
    grad_out, query, key, value, bias, out = args[:6]
    logsumexp, dropout_p, philox_seed, philox_offset = args[10:14]
    gradient, query, key, value, out = (
        each.transpose(1, 2) for each in (grad_out, query, key, value, out)
    )
    return efficient_attention_backward(
        call,
        gradient,
        query,
        key,
        value,
        bias,
        out,
        logsumexp,
        philox_seed,
        philox_offset,
        dropout_p,
    )


def _key_splits(batch_heads: int, key_blocks: int) -> int:
    """Count the blocks that share the keys where each needs accumulators of its own.

    Source: the heuristic in attention_backward.cu, PyTorch 2.13.
    """
    if torch.are_deterministic_algorithms_enabled():
        return 1
    if batch_heads >= 256 and key_blocks <= 2:
        key_blocks = 1
    return max(1, min(key_blocks, 200 // batch_heads))


@rule(
    "aten._safe_softmax.default",
    takes="its mask of elements (one byte each) and of rows without any key, and a number",
    source="_safe_softmax in aten/src/ATen/native/transformers/attention.cpp, PyTorch 2.13",
)
def safe_softmax(
    call: Call, self: Tensor, dim: int, dtype: torch.dtype | None = None
) -> Iterator[Step]:
    """Answer the softmax, in which rows where everything is masked are set to zero."""
    (result,) = call.outputs
    assert result is not None
    yield OUTPUTS
    yield Take(self.numel(), "masked")
    yield Take(self.numel() // max(self.size(dim), 1), "masked rows")
    yield Take(result.element_size(), "zero")


# Calls that ask a real GPU.

_HEADS = (
    # batch, heads, queries, keys, head size
    (8, 12, 512, 512, 64),
    (1, 12, 1, 1024, 64),
    (2, 16, 333, 333, 64),
    (2, 8, 1024, 1024, 128),
    (1, 4, 128, 128, 160),
    (1, 4, 256, 256, 40),
)


_SIXTEEN_BITS = (F16, BF16)


def _attention_forward(op: Any, dtype: torch.dtype, *rest: Any) -> Iterator[OpCall]:
    for batch, heads, queries, keys, size in _HEADS:
        query = zeros(batch, heads, queries, size, dtype=dtype)
        other = zeros(batch, heads, keys, size, dtype=dtype)
        yield op_call(op, query, other, other, *rest)


@asks("aten._scaled_dot_product_flash_attention.default")
def _flash_calls() -> Iterator[OpCall]:
    op = aten._scaled_dot_product_flash_attention.default
    for dtype in _SIXTEEN_BITS:
        yield from _attention_forward(op, dtype, 0.0, False)
        yield from _attention_forward(op, dtype, 0.0, True)
        yield from _attention_forward(op, dtype, 0.1, False)


@asks("aten._scaled_dot_product_efficient_attention.default")
def _efficient_calls() -> Iterator[OpCall]:
    op = aten._scaled_dot_product_efficient_attention.default
    for dtype in (F32, *_SIXTEEN_BITS):
        yield from _attention_forward(op, dtype, None, True, 0.0, False)
        yield from _attention_forward(op, dtype, None, True, 0.1, True)


def _through(forward: Callable[..., Any], backend: str) -> Callable[..., Any]:
    """Return a function that runs an attention op and its backward pass, by autograd."""

    def both(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output = forward(query, key, value)[0]
        (gradient,) = torch.autograd.grad(output, query, torch.ones_like(output))
        return gradient

    both.__name__ = backend
    return both


@dataclass(frozen=True)
class _Leaf:
    """Makes a tensor that wants a gradient."""

    made: Zeros

    def __call__(self) -> Tensor:
        return self.made().requires_grad_()

    def __str__(self) -> str:
        return str(self.made)

    __repr__ = __str__


def _attention_backward(
    forward: Callable[..., Any], name: str, dtype: torch.dtype
) -> Iterator[OpCall]:
    for batch, heads, queries, keys, size in _HEADS:
        query = zeros(batch, heads, queries, size, dtype=dtype)
        other = zeros(batch, heads, keys, size, dtype=dtype)
        operands = tuple(map(_Leaf, (query, other, other)))
        yield OpCall(f"{name}, backward ({query}, {other})", _through(forward, name), operands)


@asks("aten._scaled_dot_product_flash_attention_backward.default")
def _flash_backward_calls() -> Iterator[OpCall]:
    def flash(query: Tensor, key: Tensor, value: Tensor) -> Any:
        return aten._scaled_dot_product_flash_attention.default(query, key, value, 0.0, True)

    for dtype in _SIXTEEN_BITS:
        yield from _attention_backward(flash, "flash", dtype)


@asks("aten._scaled_dot_product_efficient_attention_backward.default")
def _efficient_backward_calls() -> Iterator[OpCall]:
    def efficient(query: Tensor, key: Tensor, value: Tensor) -> Any:
        op = aten._scaled_dot_product_efficient_attention.default
        return op(query, key, value, None, True, 0.0, True)

    for dtype in (F32, *_SIXTEEN_BITS):
        yield from _attention_backward(efficient, "efficient", dtype)


@asks("aten._safe_softmax.default")
def _safe_softmax_calls() -> Iterator[OpCall]:
    for dtype in (F32, BF16):
        for shape in ((8, 12, 512, 512), (1, 1, 33, 77)):
            yield op_call(aten._safe_softmax.default, zeros(*shape, dtype=dtype), -1)
