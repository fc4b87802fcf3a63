"""Origins of allocations, in a few words, read from the frames of a memory history.

A history with C++ frames (`stacks="all"`) tells more than the Python line: each op that was called
is a function `at::_ops::NAME::call`, each autograd node a method `NAME::apply`. In the backward
pass, which runs on a thread without Python, they are all there is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vramlab.source_files import CodeOwner, owner_of

_OP = re.compile(r"\b(?:at|\w+)::_ops::(\w+)::(?:call|redispatch)\b")
_NODE = re.compile(r"\btorch::autograd::(?:generated::)?(\w+)::apply\b")
_KERNEL = re.compile(r"\b((?:at::native|at::cuda|at::cudnn|c10|vramlab)::[\w:~]+)")
_TAKE = re.compile(r"^vramlab::take\((.*)\)$")
_ALLOCATORS = re.compile(r"allocat|empty|Allocator|StorageImpl|cudaMalloc|CUDACaching|raw_", re.I)


class AllocationOrigin(NamedTuple):
    """The ops, kernel, autograd node and line that an allocation comes from."""

    ops: str
    """The ops that were running, outermost first: 'linear > addmm'."""
    kernel: str
    """The C++ function that asked, or, on a virtual GPU, what the rule calls it; may be empty."""
    node: str
    """The autograd node whose backward was running, such as 'AddmmBackward0', or empty."""
    line: str
    """The innermost line of Python outside of PyTorch: 'modeling_bert.py:233 forward'."""

    def __str__(self) -> str:
        told = [self.ops or "no op"]
        told += [f"in {self.node}"] if self.node else []
        told += [f"by {self.kernel}"] if self.kernel else []
        told += [f"at {self.line}"] if self.line else []
        return ", ".join(told)


UNKNOWN = AllocationOrigin("", "", "", "")


class OriginReader:
    """Reads origins from frames; remembers what it has found out about a frame."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, int, str], tuple[str, str]] = {}

    def read(self, frames: Sequence[Mapping[str, Any]]) -> AllocationOrigin:
        """Return the origin that frames, innermost first, tell."""
        ops: list[str] = []
        kernel = node = line = ""
        for frame in frames:
            key = (frame["filename"], frame["line"], frame["name"])
            known = self._known.get(key)
            if known is None:
                known = self._known[key] = _classify(*key)
            kind, text = known
            if kind == "op" and not node:
                if not ops or ops[-1] != text:
                    ops.append(text)
            elif kind == "kernel" and not ops:
                kernel = kernel or text
            elif kind == "node":
                node = node or text
            elif kind == "line":
                line = line or text
        return AllocationOrigin(" > ".join(reversed(ops)), kernel, node, line)


def _classify(filename: str, number: int, name: str) -> tuple[str, str]:
    """Classify a frame: ("op", "addmm"), ("node", ...), ("kernel", ...), ("line", ...)."""
    if filename.endswith(".py"):
        if owner_of(filename) not in (CodeOwner.PROGRAM, CodeOwner.PACKAGE):
            return ("machinery", "")
        return ("line", f"{Path(filename).name}:{number} {name.rpartition('.')[2]}")
    for kind, pattern in (("op", _OP), ("node", _NODE), ("kernel", _TAKE)):
        if found := pattern.search(name):
            return (kind, found[1])
    if (found := _KERNEL.match(name)) and not _ALLOCATORS.search(found[1]):
        return ("kernel", found[1])
    return ("machinery", "")
