"""Rules of the copies by which FSDP2 packs what it sends, and unpacks what it receives.

One kernel copies all parts; the addresses, sizes and blocks that it works from are put into one
tensor of int64 on the GPU. Where operands are scattered, or are cast otherwise, it is ordinary
copies.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from vramlab.cuda_rules.gpu_facts import CudaGpuFacts
from vramlab.cuda_rules.rounding import ceil_div
from vramlab.kernels.rule_table.operands import is_dense
from vramlab.kernels.rule_table.registry import OUTPUTS, Call, Give, Status, Step, Take, rule

_SOURCE = "aten/src/ATen/native/cuda/TensorShape.cu, PyTorch 2.13"
_BLOCK_THREADS = 128
_TILE_BYTES = 16 * _BLOCK_THREADS
_WHERE = "addresses, sizes and blocks"


@rule(
    "aten.split_with_sizes_copy.out",
    "fsdp.split_with_sizes_copy.default",
    takes="8 B for each block of the kernel, and 32 B for each part and 8 more",
    source=f"split_with_sizes_copy_out_cuda in {_SOURCE}",
    status=Status.FROM_SOURCE,
)
def split_with_sizes_copy(
    call: Call, self: Tensor, split_sizes: Sequence[int], dim: int = 0, *, out: Sequence[Tensor]
) -> Iterable[Step]:
    if not all(map(is_dense, (self, *out))):
        return
    dim %= self.dim()
    chunks = math.prod(self.shape[:dim])
    row_bytes = self.stride(dim) * self.element_size()
    sizes = [size * row_bytes for size in split_sizes]
    rounds = _rounds_of_each_thread(sizes, chunks, call.context.model)
    blocks = sum(ceil_div(size, _TILE_BYTES * rounds) for size in sizes)
    # Addresses there and here, sizes and the first block of each part, and where blocks end.
    yield Take(8 * (4 * len(sizes) + 1 + blocks), _WHERE)


def _rounds_of_each_thread(sizes: Sequence[int], chunks: int, model: CudaGpuFacts) -> int:
    """Count how often each thread copies 16 B of a chunk, so that blocks fill the GPU twice."""
    tiles = sum(ceil_div(size, _TILE_BYTES) for size in sizes) * chunks
    threads = model.multiprocessors * model.max_threads_per_multiprocessor
    factor = ceil_div(tiles, threads // _BLOCK_THREADS * 2)
    chunks_per_block = min(math.isqrt(max(factor - 1, 0)) + 1 if factor else 0, chunks)
    return ceil_div(factor, chunks_per_block) if chunks_per_block else 1


@rule(
    "aten._chunk_cat.default",
    "aten._chunk_cat.out",
    "fsdp.chunk_cat.default",
    takes="8 B for each block of the kernel, and 48 B for each tensor and 16 more; of tensors that "
    "are not contiguous, each that is padded",
    source=f"get_chunk_cat_metadata in {_SOURCE}, and TensorShape.cpp above it",
    status=Status.FROM_SOURCE,
)
def chunk_cat(
    call: Call, tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor | None = None
) -> Iterable[Step]:
    first = tensors[0]
    result = first if out is None else out
    dim %= first.dim()
    if not all(each.is_contiguous() for each in tensors):
        for tensor in tensors:
            yield from _padded(tensor, dim, num_chunks)
        if out is None:
            yield OUTPUTS
        return
    if out is None:
        yield OUTPUTS
    widens = (first.dtype, result.dtype) == (torch.bfloat16, torch.float32)
    if first.dtype == result.dtype or widens:
        blocks = _blocks_of_chunks(tensors, dim, num_chunks, result)
        # Of each: address, sizes, number of blocks, and where bytes and blocks begin; their ends.
        yield Take(8 * (6 * len(tensors) + 2 + blocks), _WHERE)


def _padded(tensor: Tensor, dim: int, num_chunks: int) -> Iterator[Step]:
    """Yield the copy of a tensor that has chunks of one size, if it makes one (`_pad_chunk`)."""
    before, size, after = tensor.shape[:dim], tensor.shape[dim], tensor.shape[dim + 1 :]
    rows = ceil_div(size, num_chunks)
    try:
        tensor.view(*before, num_chunks, rows * math.prod(after))
    except RuntimeError:  # of another number of elements, or its strides do not allow it
        numel = math.prod((*before, num_chunks * rows, *after))
        yield Take(numel * tensor.element_size(), "padded tensor")


def _blocks_of_chunks(tensors: Sequence[Tensor], dim: int, num_chunks: int, result: Tensor) -> int:
    """Count the kernel's blocks: one for each tile of what each chunk gets of each tensor."""
    blocks = 0
    for tensor in tensors:
        rows = ceil_div(tensor.shape[dim], num_chunks)
        chunk_bytes = rows * math.prod(tensor.shape[dim + 1 :]) * result.element_size()
        blocks += ceil_div(chunk_bytes, _TILE_BYTES)
    return blocks


@rule(
    "fsdp.chunk_cat_mixed_dtype.default",
    takes="what packing gradients of one dtype takes; of several, 16 B less where all are copied "
    "or widened to float32, else casts of those that have another dtype than the result",
    source="chunk_cat_mixed_dtype_cuda in torch/csrc/distributed/fsdp/ChunkCat.cu, PyTorch 2.15",
    status=Status.FROM_SOURCE,
)
def chunk_cat_mixed_dtype(
    call: Call, tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor
) -> Iterable[Step]:
    first = tensors[0]
    if all(tensor.dtype == first.dtype for tensor in tensors):
        yield from chunk_cat(call, tensors, dim, num_chunks, out=out)
        return
    copied = {out.dtype, torch.bfloat16} if out.dtype == torch.float32 else {out.dtype}
    numbers = 6 * len(tensors) + _blocks_of_chunks(tensors, dim, num_chunks, out)
    if dim == 0 and all(
        tensor.dtype in copied and tensor.dim() and tensor.numel() and tensor.is_contiguous()
        for tensor in tensors
    ):
        yield Take(8 * numbers, _WHERE)
        return
    casts = [
        Take(tensor.numel() * out.element_size(), f"gradient {index} in the result's dtype")
        for index, tensor in enumerate(tensors)
        if tensor.dtype != out.dtype
    ]
    yield from casts
    if all(tensor.is_contiguous() for tensor in tensors):
        yield Take(8 * (numbers + 2), _WHERE)
        yield Give(_WHERE)
    yield from (Give(cast.what) for cast in casts)
