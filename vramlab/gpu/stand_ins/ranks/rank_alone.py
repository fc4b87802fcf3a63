"""Simulate one rank of a world whose other ranks were not started: it waits for none.

RANK and WORLD_SIZE say which rank it is. Collectives have the sizes that they would have: those of
NCCL are the engine's, and those of gloo are PyTorch's fake process group, which moves nothing.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlparse

import torch.distributed as dist
from torch.distributed import distributed_c10d

from vramlab.gpu.core.local_ranks import others_run
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.torch_internals import ProcessGroupBackend, Replaced, make_fake_group

NCCL_ID_BYTES = 128
"""Source: `NCCL_UNIQUE_ID_BYTES` in NCCL's documentation."""


@contextmanager
def waiting_for_nobody() -> Iterator[None]:
    """Let `init_process_group` begin without others, in a PyTorch that has NCCL."""
    patches, alone = Patches(), RankAlone()
    make_group = Replaced.NEW_PROCESS_GROUP.value()

    @functools.wraps(make_group)
    def make(*args: Any, **kwargs: Any) -> Any:
        for_a_call = Patches()
        alone.replace_gloo(for_a_call)
        try:
            return make_group(*args, **kwargs)
        finally:
            for_a_call.undo()

    number = Replaced.SET_SEQUENCE_NUMBER.value()

    def number_if_together(group: Any) -> None:
        if not alone.is_so:  # fake groups have none
            number(group)

    # Each init_process_group wraps it, to begin every line with the rank, and does not unwrap it.
    patches.set(sys, "excepthook", sys.excepthook)
    try:
        alone.wait_for_nobody(patches)
        patches.set(*Replaced.NEW_PROCESS_GROUP.at, make)
        patches.set(*Replaced.SET_SEQUENCE_NUMBER.at, number_if_together)
        yield
    finally:
        patches.undo()


_TROUBLE = ("exception_dump", "remote_error")
"""In keys under which a rank tells others that it has failed: each would write down what it did.
Source: `kStoreDumpKey` and `kStoreErrorSignalKey` in
torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp, PyTorch 2.13."""


class StoreOfRankAlone(dist.Store):  # type: ignore[misc, name-defined]
    """What ranks tell each other by, where this one is alone: others have told all that is asked.

    NCCL's ranks wait in it for the identifier that the first one makes. The substitute for NCCL
    reads none.
    """

    def __init__(self) -> None:
        super().__init__()
        self._own = dist.HashStore()  # type: ignore[attr-defined]

    def get(self, key: str) -> bytes:
        """Give what this rank has written, or else an identifier of NCCL's size."""
        return bytes(self._own.get(key)) if self._own.check([key]) else bytes(NCCL_ID_BYTES)

    def set(self, key: str, value: str) -> None:
        """Write what others would read."""
        self._own.set(key, value)

    def add(self, key: str, amount: int) -> int:
        """Count as this rank alone does."""
        return int(self._own.add(key, amount))

    def check(self, keys: list[str]) -> bool:
        """Return whether all have written: they have, unless they wrote of trouble."""
        return self._own.check(keys) or not any(word in key for key in keys for word in _TROUBLE)

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        """Return immediately."""

    def delete_key(self, key: str) -> bool:
        """Forget what was written."""
        return bool(self._own.delete_key(key))

    def clone(self) -> StoreOfRankAlone:
        """Return the same store: each process has one."""
        return self


class RankAlone:
    """Knows whether this process is a rank whose other ranks were not started.

    Attributes:
        is_so: whether it has turned out to be one, when its process group was made.
    """

    is_so = False
    _store: StoreOfRankAlone | None = None
    """Kept here: PyTorch keeps what C++ knows of it, without these methods."""

    def wait_for_nobody(self, patches: Patches) -> None:
        """Have the processes of a group meet only where there are others."""
        meet: Any = vars(distributed_c10d)["rendezvous"]

        @functools.wraps(meet)
        def rendezvous(url: str, rank: int = -1, world_size: int = -1, **how: Any) -> Any:
            asked = {name: words[0] for name, words in parse_qs(urlparse(url).query).items()}
            own, size = (
                int(asked.get(name) or os.environ.get(variable) or -1) if given < 0 else given
                for name, variable, given in (
                    ("rank", "RANK", rank),
                    ("world_size", "WORLD_SIZE", world_size),
                )
            )
            if min(own, size) < 0 or others_run(size):
                yield from meet(url, rank, world_size, **how)
            else:
                self.is_so = True
                self._store = StoreOfRankAlone()
                yield self._store, own, size

        patches.set(distributed_c10d, "rendezvous", rendezvous)

    def replace_gloo(self, patches: Patches) -> None:
        """Let gloo, whose ranks connect to each other, move nothing where this one is alone."""
        if self.is_so:
            patches.set(distributed_c10d, "ProcessGroupGloo", _FakeGloo)


class GroupStandIn(type):
    """A class whose call makes a process group of another kind, which then counts as its own."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, ProcessGroupBackend)


class _FakeGloo(metaclass=GroupStandIn):
    """Gloo where other ranks do not run."""

    def __new__(cls, store: Any, rank: int, size: int, **options: Any) -> Any:
        return make_fake_group(rank, size)
