"""Where a block comes from, read from the frames of PyTorch's memory history.

The counterpart of `origins.py`, which looks at frames while they are there. In the backward pass
autograd's own threads have no frames of Python: the line is then that of the call of backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch

from vramlab.gpu.torch_internals import OpOverload, schema_of
from vramlab.measure import Category, Frame
from vramlab.recordings.origins import OriginReader
from vramlab.report.evidence.origins import BlockOrigin
from vramlab.source_files import CodeOwner, owner_of

Place = tuple[Frame | None, Frame | None]
"""A line, and the line of the user's own code that led there."""

_KEPT_BY_LIBRARIES = ("getCurrentCUDABlasHandle", "getNewWorkspace", "getCUDABlasLtWorkspace")
"""Functions in aten/src/ATen/cuda/CublasHandlePool.cpp, PyTorch 2.13, that make workspaces."""

_MOVES = ("to_device", "to_dtype_layout")
"""What `.to(device)` and `.cuda()` call."""


class _Stack(NamedTuple):
    frames: Sequence[Mapping[str, Any]]  # kept, so that the ids stay theirs
    place: Place
    owner: Category | None  # outside of a backward pass


class HistoryOrigins:
    """Reads origins from entries of a history with all stacks.

    One that PyTorch returns has one object for each frame, however many stacks it is in, and a
    training repeats its stacks in every step.
    """

    def __init__(self) -> None:
        self._reader = OriginReader()
        self._stacks: dict[tuple[int, ...], _Stack] = {}

    def read(self, entry: Mapping[str, Any], backward: Place | None) -> BlockOrigin:
        """Return the origin of an allocation.

        Args:
            entry: of the history.
            backward: the call of the backward pass that was running; None: there was none.
        """
        frames = entry.get("frames", ())
        key = tuple(map(id, frames))
        if (stack := self._stacks.get(key)) is None:
            stack = self._stacks[key] = self._stack(frames)
        line, caller = stack.place
        in_backward = backward is not None
        if line is None and backward is not None:
            line, caller = backward
        owner = stack.owner
        if owner is Category.INPUTS and in_backward:
            owner = None
        return BlockOrigin(line, caller, in_backward, owner)

    def forget(self) -> None:
        """Let go of the frames that were read."""
        self._stacks.clear()

    def _stack(self, frames: Sequence[Mapping[str, Any]]) -> _Stack:
        origin = self._reader.read(frames)
        outermost = origin.ops.partition(" > ")[0]
        owner = None
        if origin.kernel.rpartition("::")[2] in _KEPT_BY_LIBRARIES:
            owner = Category.WORKSPACES
        elif outermost in _MOVES or _is_factory(outermost):
            owner = Category.INPUTS
        return _Stack(frames, place_of(frames), owner)


def place_of(frames: Sequence[Mapping[str, Any]]) -> Place:
    """Find the innermost line outside of PyTorch, and the one of the user's own code behind it."""
    line: Frame | None = None
    for frame in frames:
        if not frame["filename"].endswith(".py"):
            continue
        owner = owner_of(frame["filename"])
        if owner is CodeOwner.PROGRAM:
            own = Frame(frame["filename"], frame["line"], frame["name"])
            return (own, None) if line is None else (line, own)
        if owner is CodeOwner.PACKAGE and line is None:
            line = Frame(frame["filename"], frame["line"], frame["name"])
    return line, None


@cache
def _is_factory(name: str) -> bool:
    """Return whether an op, such as `randint_low`, makes a tensor of none."""
    for cut in (*(at for at, letter in enumerate(name) if letter == "_"), len(name)):
        packet = getattr(torch.ops.aten, name[:cut], None) if name[:cut] else None
        overload = getattr(packet, name[cut + 1 :] or "default", None)
        if isinstance(overload, OpOverload):
            return all("Tensor" not in str(each.type) for each in schema_of(overload).arguments)
    return False
