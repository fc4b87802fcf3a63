"""Count the bytes that a program moves between the host and the GPU, copy by copy.

    with record_transfers() as transfers:
        train_one_step()
    transfers.to_gpu_bytes, transfers.to_host_bytes

Every copy between devices goes through one of a few ATen ops; a dispatch mode sees them all, those
of the backward pass too, on a real GPU and on a virtual one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from vramlab.gpu import attached as attached_virtual
from vramlab.gpu.ops.copies import device_index_of
from vramlab.gpu.torch_internals import OpOverload
from vramlab.measure.op_observer import WatchOps
from vramlab.table import Table
from vramlab.units import format_mib

aten = torch.ops.aten

Direction = Literal["to GPU", "to host"]


@dataclass(frozen=True)
class Transfer:
    """One copy between the host and a GPU."""

    direction: Direction
    """Which way it went."""
    size_bytes: int
    """What crossed the link: in the dtype that it crossed in, where the copy also converts."""
    pinned: bool
    """Whether the host's side is page-locked, so that the GPU can fetch it without the CPU."""
    non_blocking: bool
    """Whether the program goes on meanwhile: it was asked for, and the host's side is pinned."""


@dataclass
class Transfers:
    """The copies of a program, in order."""

    copies: list[Transfer] = field(default_factory=list)

    @property
    def to_gpu_bytes(self) -> int:
        """All that went from the host to GPUs."""
        return sum(copy.size_bytes for copy in self.copies if copy.direction == "to GPU")

    @property
    def to_host_bytes(self) -> int:
        """All that went from GPUs to the host."""
        return sum(copy.size_bytes for copy in self.copies if copy.direction == "to host")

    @property
    def waited_for_bytes(self) -> int:
        """Add up what the program waited for: copies that were not both pinned and non-blocking."""
        return sum(copy.size_bytes for copy in self.copies if not copy.non_blocking)

    def table(self, caption: str = "Copies between host and GPU") -> Table:
        """Show a row for each direction: copies, their bytes, and the bytes that are waited for."""
        rows = []
        directions: tuple[Direction, ...] = ("to host", "to GPU")
        for direction in directions:
            there = [copy for copy in self.copies if copy.direction == direction]
            moved_bytes = sum(copy.size_bytes for copy in there)
            waited_bytes = sum(copy.size_bytes for copy in there if not copy.non_blocking)
            rows.append(
                (direction, f"{len(there):,}", format_mib(moved_bytes), format_mib(waited_bytes)),
            )
        return Table(
            caption, ("direction", "copies", "moved", "the program waits for"), tuple(rows)
        )


@contextmanager
def record_transfers() -> Iterator[Transfers]:
    """Record the copies between host and GPU that the body of the with statement makes.

    Known limitations: what a kernel reads of pinned memory by itself is no copy, and not seen.
    """
    transfers = Transfers()

    def note(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        transfers.copies.extend(transfers_of(func, args, kwargs, result))

    with WatchOps(note):
        yield transfers


def transfers_of(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> Iterator[Transfer]:
    """List what an op copied between the host and a GPU."""
    for source, target, non_blocking in copies_of(func, args, kwargs, result):
        if (gpu_of(source) >= 0) != (gpu_of(target) >= 0):
            yield _transfer(source, target, non_blocking)
    if func is aten._local_scalar_dense.default and gpu_of(args[0]) >= 0:
        yield Transfer("to host", args[0].dtype.itemsize, False, False)


def _transfer(source: Tensor, target: Tensor, non_blocking: bool) -> Transfer:
    """Return a copy between host and GPU as it crosses the link."""
    from_gpu = gpu_of(source) >= 0
    # A copy that converts is made in one dtype: blocking ones convert on the host, others on the
    # GPU. Source: copy_kernel_cuda in aten/src/ATen/native/cuda/Copy.cu, PyTorch 2.13.
    dtype = source.dtype if from_gpu != non_blocking else target.dtype
    pinned = (target if from_gpu else source).is_pinned()
    return Transfer(
        "to host" if from_gpu else "to GPU",
        target.numel() * dtype.itemsize,  # a source that is broadcast is spread out first
        pinned,
        pinned and non_blocking,
    )


_Read = Callable[[Sequence[Any], dict[str, Any], Any], Iterator[tuple[Tensor, Tensor, bool]]]


def _read_to_copy(
    args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> Iterator[tuple[Tensor, Tensor, bool]]:
    yield args[0], result, bool(kwargs.get("non_blocking"))


def _read_copy(
    args: Sequence[Any], kwargs: dict[str, Any], _: Any
) -> Iterator[tuple[Tensor, Tensor, bool]]:
    non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    yield args[1], args[0], bool(non_blocking)


def _read_foreach_copy(
    args: Sequence[Any], kwargs: dict[str, Any], _: Any
) -> Iterator[tuple[Tensor, Tensor, bool]]:
    non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    for target, source in zip(args[0], args[1], strict=True):
        yield source, target, bool(non_blocking)


_READERS: dict[OpOverload, _Read] = {
    aten._to_copy.default: _read_to_copy,
    aten.copy_.default: _read_copy,
    aten._foreach_copy_.default: _read_foreach_copy,
}


def copies_of(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """List what an op copied from tensor to tensor: source, target, whether non-blocking.

    On one device or between two. Nothing for ops that are no copies.
    """
    read = _READERS.get(func)
    return iter(()) if read is None else read(args, kwargs, result)


def gpu_of(tensor: Tensor) -> int:
    """Index of the GPU that a tensor is on, -1 on the host.

    A virtual GPU's tensors only look like host or meta tensors to a dispatch mode.
    """
    return device_index_of(tensor) if attached_virtual() is not None else tensor.get_device()
