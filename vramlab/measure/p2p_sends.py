"""Count the bytes that a rank sends to other ranks, one by one, as the stages of a pipeline do.

    with record_sends() as sends:
        schedule.step(batch)
    sends.bytes_to                    # {1: ...}

`torch.distributed`'s sends are ops of torch, so a dispatch mode sees them: with NCCL and with gloo,
on real GPUs and on virtual ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vramlab.gpu.torch_internals import OpOverload, plain_name_of
from vramlab.measure.op_observer import WatchOps


@dataclass
class Sends:
    """Tensors that a rank sent to others."""

    bytes_to: dict[int, int] = field(default_factory=dict)
    """Bytes by the rank that they went to, as it is numbered in its group."""

    @property
    def sent_bytes(self) -> int:
        """To all ranks together."""
        return sum(self.bytes_to.values())


@contextmanager
def record_sends() -> Iterator[Sends]:
    """Record what the body of the with statement sends."""
    sends = Sends()

    def note(func: OpOverload, args: Sequence[Any], *_: Any) -> None:
        if func.namespace == "c10d" and plain_name_of(func) == "send":
            tensors, _group, to, *_tag = args
            size_bytes = sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors)
            sends.bytes_to[to] = sends.bytes_to.get(to, 0) + size_bytes

    with WatchOps(note):
        yield sends
