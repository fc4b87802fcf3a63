"""Copies among the GPUs of one process, as DataParallel makes them.

Source: `broadcast`, `broadcast_coalesced`, `scatter` and `gather` in torch/csrc/cuda/comm.cpp,
`take_tensors` in torch/csrc/utils/tensor_flatten.cpp, PyTorch 2.13; torch/nn/parallel/comm.py calls
them. It adds gradients up with NCCL, which takes nothing of the allocator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch.cuda.nccl
from torch import Tensor

from vramlab.gpu.core.session import Session
from vramlab.gpu.torch_internals import (
    Broadcast,
    DisableTorchFunction,
    Replaced,
    disable_current_modes,
    flatten_dense_tensors,
    unflatten_dense_tensors,
)


def install(session: Session) -> None:
    """Set the copies on `torch._C`, where torch.nn.parallel calls them."""
    patches = session.patches
    patches.set(*Replaced.BROADCAST.at, broadcast)
    patches.set(*Replaced.BROADCAST_COALESCED.at, broadcast_coalesced)
    patches.set(*Replaced.SCATTER.at, scatter)
    patches.set(*Replaced.GATHER.at, gather)
    patches.set(*Replaced.BROADCAST_FUNCTION.at, BroadcastToGPUs)
    patches.set(torch.cuda.nccl, "is_available", can_be_added)
    patches.set(torch.cuda.nccl, "reduce", add_up)


class BroadcastToGPUs(Broadcast):
    """Copy parameters to GPUs; what gets no gradient there, gets zeros there.

    PyTorch makes these zeros in C++, which does not know one virtual GPU from another.
    """

    @staticmethod
    def forward(ctx: Any, target_gpus: Sequence[Any], *inputs: Tensor) -> Any:
        """Do as PyTorch's; note what zeros would look like."""
        ctx.set_materialize_grads(False)
        ctx.looks = [(tensor.shape, tensor.dtype) for tensor in inputs]
        return Broadcast.forward(ctx, target_gpus, *inputs)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor | None) -> Any:
        """Do as PyTorch's, with zeros for missing gradients."""
        looks = [(gpu, *look) for gpu in ctx.target_gpus for look in ctx.looks]
        gradients = [
            torch.zeros(shape, dtype=dtype, device=_cuda(gpu)) if gradient is None else gradient
            for gradient, (gpu, shape, dtype) in zip(grad_outputs, looks, strict=True)
        ]
        return Broadcast.backward(ctx, *gradients)


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """Copy a tensor of the first device, which stays as it is, to the others."""
    if tensor.get_device() != devices[0]:
        raise RuntimeError(
            f"device of broadcasted tensor must appear as the first on devices list; it is on "
            f"{tensor.device}, and the list is {list(devices)}"
        )
    return [tensor, *(tensor.to(_cuda(index), non_blocking=True) for index in devices[1:])]


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_bytes: int
) -> list[list[Tensor]]:
    """Copy many tensors in flat pieces of about `buffer_bytes`; the copies are views of them."""
    copies: list[list[Tensor]] = [[*tensors] for _ in devices]
    for numbers in _chunks(tensors, buffer_bytes):
        chunk = [tensors[number] for number in numbers]
        flat = broadcast(flatten_dense_tensors(chunk), devices)
        for output, copied in zip(copies[1:], flat[1:], strict=True):
            pieces = unflatten_dense_tensors(copied, chunk)
            for number, piece in zip(numbers, pieces, strict=True):
                output[number] = piece.detach()
    return copies


def _chunks(tensors: Sequence[Tensor], buffer_bytes: int) -> Iterator[list[int]]:
    """Yield the indices of tensors that travel together: of one dtype, as the buffer fills."""
    open_chunks: dict[torch.dtype, list[int]] = {}
    for number, tensor in enumerate(tensors):
        chunk = open_chunks.setdefault(tensor.dtype, [])
        chunk.append(number)
        if sum(tensors[each].nbytes for each in chunk) >= buffer_bytes:
            yield open_chunks.pop(tensor.dtype)
    yield from open_chunks.values()


def can_be_added(tensors: Sequence[Tensor]) -> bool:
    """Return whether NCCL adds these tensors up. Source: `is_available` in torch/cuda/nccl.py."""
    on_gpus = all(not t.is_sparse and t.is_contiguous() and t.is_cuda for t in tensors)
    return on_gpus and len({t.get_device() for t in tensors}) == len(tensors)


def add_up(inputs: Sequence[Tensor], output: Tensor, root: int = 0) -> None:
    """Add tensors of several GPUs into `output`, on the GPU of `inputs[root]`."""
    # What NCCL does is no op of PyTorch's, and takes nothing of its memory.
    with DisableTorchFunction(), disable_current_modes():
        output.copy_(inputs[root])
        for number, tensor in enumerate(inputs):
            if number != root:
                output.add_(tensor)


def scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[Any] | None = None,
) -> list[Tensor]:
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


def gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
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
