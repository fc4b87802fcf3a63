"""Count the bytes that a rank reduces, gathers and broadcasts, collective by collective.

    with record_collectives() as collectives:
        loss.backward()
    collectives.table()
    collectives.sent_bytes             # around a ring

Every collective of torch.distributed is an op of torch, that of DDP's reducer in C++ too; a
dispatch mode sees them all: with NCCL and with gloo, on real GPUs and on virtual ones, in a world
of processes and in one that a rank alone stands for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist
from torch import Tensor

from vramlab.cuda_rules.collectives import Kind, ring_sent_bytes
from vramlab.gpu.torch_internals import OpOverload, group_named, plain_name_of, script_type_of
from vramlab.measure.op_observer import WatchOps
from vramlab.table import Table
from vramlab.units import format_mib


@dataclass(frozen=True)
class Collective:
    """One call in which ranks exchange tensors."""

    kind: Kind
    """What is done."""
    whole_bytes: int
    """The whole tensor; see `ring_sent_bytes`."""
    ranks: int
    """How many take part."""

    @property
    def sent_bytes(self) -> int:
        """Add up what this rank sends its neighbour, if they do it around a ring."""
        return ring_sent_bytes(self.kind, self.whole_bytes, self.ranks)


@dataclass
class Collectives:
    """The collectives of a program, in order."""

    calls: list[Collective] = field(default_factory=list)

    def of(self, kind: Kind) -> list[Collective]:
        """Select those of one kind."""
        return [call for call in self.calls if call.kind == kind]

    @property
    def sent_bytes(self) -> int:
        """Add up what this rank sends in all, if all of them go around a ring."""
        return sum(call.sent_bytes for call in self.calls)

    def table(self, caption: str = "Collectives of this rank") -> Table:
        """Show a row for each call: what it is, how large, and what crosses each link of a ring."""
        rows = tuple(
            (
                call.kind,
                f"{call.ranks:,}",
                format_mib(call.whole_bytes),
                format_mib(call.sent_bytes),
            )
            for call in self.calls
        )
        return Table(caption, ("collective", "ranks", "tensor", "sent around a ring"), rows)


@contextmanager
def record_collectives() -> Iterator[Collectives]:
    """Record the collectives that the body of the with statement calls on this rank.

    Known limitations: sends and receives between two ranks are no collectives, and not seen.
    """
    collectives = Collectives()

    def note(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        if (call := collective_of(func, args, kwargs, result)) is not None:
            collectives.calls.append(call)

    with WatchOps(note):
        yield collectives


def collective_of(
    func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any
) -> Collective | None:
    """Return what an op exchanges among ranks; None if it is no collective."""
    if (known := _KNOWN.get(f"{func.namespace}.{plain_name_of(func)}")) is None:
        return None
    kind, where = known
    whole_bytes = _nbytes(result if where is None else args[where])
    return Collective(kind, whole_bytes, _ranks([*args, *kwargs.values()]))


_KNOWN: dict[str, tuple[Kind, int | None]] = {
    "c10d.allreduce_": ("all-reduce", 0),
    "c10d.allreduce_coalesced_": ("all-reduce", 0),
    "c10d.broadcast_": ("broadcast", 0),
    "c10d.reduce_": ("reduce", 0),
    "c10d.allgather_": ("all-gather", 0),
    "c10d.allgather_coalesced_": ("all-gather", 0),
    "c10d._allgather_base_": ("all-gather", 0),
    "c10d.allgather_into_tensor_coalesced_": ("all-gather", 0),
    "c10d.reduce_scatter_": ("reduce-scatter", 1),
    "c10d._reduce_scatter_base_": ("reduce-scatter", 1),
    "c10d.reduce_scatter_tensor_coalesced_": ("reduce-scatter", 1),
    "c10d.alltoall_": ("all-to-all", 1),
    "c10d.alltoall_base_": ("all-to-all", 1),
    "_c10d_functional.all_reduce": ("all-reduce", 0),
    "_c10d_functional.all_reduce_": ("all-reduce", 0),
    "_c10d_functional.all_reduce_coalesced": ("all-reduce", 0),
    "_c10d_functional.all_reduce_coalesced_": ("all-reduce", 0),
    "_c10d_functional.broadcast": ("broadcast", 0),
    "_c10d_functional.broadcast_": ("broadcast", 0),
    "_c10d_functional.all_gather_into_tensor": ("all-gather", None),
    "_c10d_functional.all_gather_into_tensor_out": ("all-gather", None),
    "_c10d_functional.all_gather_into_tensor_coalesced": ("all-gather", None),
    "_c10d_functional.reduce_scatter_tensor": ("reduce-scatter", 0),
    "_c10d_functional.reduce_scatter_tensor_coalesced": ("reduce-scatter", 0),
    "_c10d_functional.all_to_all_single": ("all-to-all", 0),
}
"""What each op does, and which of its arguments is the whole tensor; None: its result.

Source: torch/csrc/distributed/c10d/Ops.cpp and Functional.cpp, PyTorch 2.13.
"""


def _nbytes(tensors: Any) -> int:
    """Bytes of a tensor, or of all in a list (of lists)."""
    if isinstance(tensors, Tensor):
        return tensors.numel() * tensors.dtype.itemsize
    return sum(map(_nbytes, tensors))


def _ranks(args: Sequence[Any]) -> int:
    """Count the ranks of the process group that a collective was called with."""
    for arg in args:
        if (kind := script_type_of(arg)) is not None:
            if "ProcessGroup" in kind:
                return dist.ProcessGroup.unbox(arg).size()
        elif isinstance(arg, str) and arg not in _REDUCTIONS:
            return int(group_named(arg).size())
    raise AssertionError("a collective was called without a process group")


_REDUCTIONS = {"sum", "avg", "product", "min", "max", "band", "bor", "bxor"}
"""Names of operations, which functional collectives get beside that of the group."""
