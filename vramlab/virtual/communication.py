"""Copies among the GPUs of one process, as DataParallel makes them.

Source: `broadcast`, `broadcast_coalesced`, `scatter` and `gather` in torch/csrc/cuda/comm.cpp,
PyTorch 2.13; torch/nn/parallel/comm.py calls them.

Known limitation: adding gradients over GPUs takes PyTorch's way without NCCL, tensor by tensor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.cuda.nccl
from torch._utils import (
    _flatten_dense_tensors,
    _take_tensors,
    _unflatten_dense_tensors,
)

from vramlab.virtual.patches import Patches


def install(patches: Patches) -> None:
    """Set the stand-ins on `torch._C`; `patches.undo()` removes them."""
    patches.set(torch._C, "_broadcast", broadcast)
    patches.set(torch._C, "_broadcast_coalesced", broadcast_coalesced)
    patches.set(torch._C, "_scatter", scatter)
    patches.set(torch._C, "_gather", gather)
    patches.set(torch.cuda.nccl, "is_available", lambda tensors: False)


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """Copy a tensor of the first device, which stays as it is, to the others."""
    if tensor.get_device() != devices[0]:
        raise RuntimeError(
            f"device of broadcasted tensor must appear as the first on devices list; it is on "
            f"{tensor.device}, and the list is {list(devices)}"
        )
    return [tensor, *(tensor.to(_cuda(index), non_blocking=True) for index in devices[1:])]


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_bytes: int
) -> list[list[torch.Tensor]]:
    """Copy many tensors in flat pieces of at most `buffer_bytes`; the copies are views of them."""
    outputs: list[list[torch.Tensor]] = [list(tensors), *([] for _ in devices[1:])]
    for chunk in _take_tensors(tensors, buffer_bytes):
        flat = broadcast(_flatten_dense_tensors(chunk), devices)
        for output, copied in zip(outputs[1:], flat[1:], strict=True):
            output.extend(t.detach() for t in _unflatten_dense_tensors(copied, chunk))
    return outputs


def scatter(
    tensor: torch.Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[Any] | None = None,
) -> list[torch.Tensor]:
    """Cut a tensor along `dim`, and copy each piece to its device."""
    if chunk_sizes is None:
        chunks = tensor.chunk(len(devices), dim)
    elif sum(chunk_sizes) == tensor.size(dim):
        chunks = tensor.split(list(chunk_sizes), dim)
    else:
        raise RuntimeError(
            "given chunk sizes don't sum up to the tensor's size (sum(chunk_sizes) == "
            f"{sum(chunk_sizes)}, but expected {tensor.size(dim)})"
        )
    moved = []
    for at, (index, chunk) in enumerate(zip(devices, chunks, strict=False)):
        with torch.cuda.stream(streams[at] if streams else None):
            moved.append(chunk.to(_cuda(index), non_blocking=True))
    return moved


def gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    """Copy tensors of several devices into one, joined along `dim`. Device -1 is the host."""
    if not all(tensor.is_cuda for tensor in tensors):
        raise RuntimeError("Gather expects all inputs to have CUDA type")
    size = list(tensors[0].size())
    size[dim] = sum(tensor.size(dim) for tensor in tensors)
    if destination is None:
        destination = torch.cuda.current_device()
    device = torch.device("cpu") if destination == -1 else _cuda(destination)
    result = torch.empty(size, dtype=tensors[0].dtype, device=device)
    start = 0
    for tensor in tensors:
        result.narrow(dim, start, tensor.size(dim)).copy_(tensor, non_blocking=True)
        start += tensor.size(dim)
    return result


def _cuda(index: int) -> torch.device:
    return torch.device("cuda", index)
