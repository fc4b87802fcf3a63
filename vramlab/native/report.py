"""What a program called that the substitutes have no meaning for, read from a shared file."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

_RECORD = struct.Struct("=IIQ40s72s")
"""`vn_slot_t` in csrc/core/report.c."""
_RECORDS = 4096
_IN_USE = 2

CORE = "libvramlab_native.so"
"""What the substitutes share: GPUs, memory, streams, the report."""

ENVIRONMENT = "VRAMLAB_NATIVE_REPORT"
"""Names the file in the environment of programs."""


class Kind(IntEnum):
    """What became of calls."""

    REFUSED = 1
    """They got their library's "not supported"."""
    COMPUTES = 2
    """They succeeded; what they would have computed was not."""
    ASSUMED = 3
    """They were answered by an assumption."""
    FOREIGN = 4
    """No calls: a library of NVIDIA's was loaded from elsewhere, beside its substitute."""


@dataclass(frozen=True)
class SubstituteCall:
    """A function that a program called."""

    kind: Kind
    library: str
    function: str
    """Or what was assumed, or where a foreign library lies."""
    count: int


def make_file(path: Path) -> None:
    """Make the file that $VRAMLAB_NATIVE_REPORT names: zeros, 512 KiB."""
    path.write_bytes(bytes(_RECORD.size * _RECORDS))


def calls_so_far() -> list[SubstituteCall]:
    """Read what the processes of this program, which runs on the native engine, have called."""
    path = os.environ.get(ENVIRONMENT)
    if not path:
        return []
    with suppress(OSError):  # no library of CUDA's was needed yet
        ctypes.CDLL(CORE).vn_tell_foreign()
    return read_file(Path(path))


def read_file(path: Path) -> list[SubstituteCall]:
    """Read what was counted, the most frequent first of each kind."""
    calls = []
    for state, kind, count, library, function in _RECORD.iter_unpack(path.read_bytes()):
        if state == _IN_USE:
            calls.append(SubstituteCall(Kind(kind), _text(library), _text(function), count))
    return sorted(calls, key=lambda call: (call.kind, -call.count, call.function))


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode(errors="replace")


def as_lines(calls: Sequence[SubstituteCall]) -> list[str]:
    """Return the refused and assumed calls, without the computing calls that are skipped anyway."""
    headings = {
        Kind.REFUSED: "Unsupported CUDA calls (they returned an error):",
        Kind.ASSUMED: "CUDA calls answered with an assumption:",
        Kind.FOREIGN: "Libraries that were loaded instead of the stub libraries (not simulated):",
    }
    lines = []
    for kind, heading in headings.items():
        of_kind = [call for call in calls if call.kind == kind]
        if of_kind:
            lines.append(heading)
            lines += [
                f"  {call.library}: {call.function}, {_times(call.count)}" for call in of_kind
            ]
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
