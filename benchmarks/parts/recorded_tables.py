"""What recordings tell beside programs, as tables: first uses, and known differences."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from benchmarks.estimates.recorded import recordings
from benchmarks.estimates.scores import markdown_table
from vramlab.recordings.entries import CONTEXT
from vramlab.recordings.known import names_and_reasons
from vramlab.recordings.store import RecordingFile
from vramlab.units import MIB


def first_uses(folder: Path) -> str:
    """Return the memory in use beside the caching allocator, as libraries load, for each GPU."""
    rows = []
    for path in recordings(folder):
        recording = RecordingFile.open(path)
        moments = [
            (moment["moment"], moment["used_bytes"] - moment["reserved_bytes"])
            for moment in recording.entries[CONTEXT].moments or ()
            if moment["used_bytes"] is not None
        ]
        first = moments[0]
        rows.append((recording.machine["gpu"], "the CUDA context", f"{first[1] / MIB:,.0f} MiB"))
        rows += [
            ("", name, f"{(now - before) / MIB:,.0f} MiB more")
            for (_, before), (name, now) in pairwise(moments)
            if now > before
        ]
    return markdown_table(("GPU", "what", "memory"), rows)


def known_differences() -> str:
    """Every difference that has a name: why it is there, and where that can be checked."""
    return markdown_table(("name", "why", "source"), names_and_reasons())
