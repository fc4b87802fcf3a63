"""Count the bytes that a process copies from GPU to GPU, link by link.

    with record_links() as links:
        y = x.to("cuda:1")
    links.bytes_by_link               # {(0, 1): x.nbytes}

Known limitation: what NCCL moves is no copy of a tensor, and not seen; nor are, on real GPUs,
DataParallel's copies, which are made in C++.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vramlab.gpu.torch_internals import OpOverload
from vramlab.measure.op_observer import WatchOps
from vramlab.measure.transfers import copies_of, gpu_of


@dataclass
class Links:
    """Copies from GPU to GPU."""

    bytes_by_link: dict[tuple[int, int], int] = field(default_factory=dict)
    """Bytes by (index of the GPU that sends, of the one that receives)."""


@contextmanager
def record_links() -> Iterator[Links]:
    """Record the copies between GPUs that the body of the with statement makes."""
    links = Links()

    def note(func: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], result: Any) -> None:
        for source, target, _ in copies_of(func, args, kwargs, result):
            link = gpu_of(source), gpu_of(target)
            if -1 not in link and link[0] != link[1]:
                sent_bytes = target.numel() * source.dtype.itemsize  # the receiver converts
                links.bytes_by_link[link] = links.bytes_by_link.get(link, 0) + sent_bytes

    with WatchOps(note):
        yield links
