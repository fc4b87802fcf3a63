"""A snapshot in the form of a report of `vramlab run --json`, for `vramlab diff`."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from vramlab.explaining.categories import Category, Phases, category_of, is_python, user_frame
from vramlab.explaining.traces import GPUTrace, read_gpus
from vramlab.explaining.unpickling import load_snapshot, read_bytes

_SNAPSHOT = re.compile(r"\.(pickle|pkl)(\.gz|\.xz)?$", re.IGNORECASE)
_OTHER = (Category.OLDER, Category.OTHER, Category.UNKNOWN)


def is_snapshot(path: Path) -> bool:
    """Return whether a file is named as a memory snapshot is."""
    return bool(_SNAPSHOT.search(path.name))


def read_as_report(path: Path) -> dict[str, Any]:
    """Read what each GPU of a snapshot had allocated at its peak, or where it ran out of memory.

    Device memory used is what PyTorch reserved: a snapshot does not say how large the CUDA context
    was.

    Raises:
        UnreadableSnapshot: the file is no memory snapshot.
    """
    gpus = read_gpus(load_snapshot(read_bytes(f"{path}"), f"{path}"))
    return {
        "program": path.name,
        "folder": "",
        "fits": False if any(gpu.failures for gpu in gpus) else None,
        "devices": [_device(gpu) for gpu in gpus],
    }


def _device(gpu: GPUTrace) -> dict[str, Any]:
    phases = Phases.of(gpu)
    categories: dict[str, int] = defaultdict(int)
    lines: dict[tuple[str, int, str] | None, int] = defaultdict(int)
    for life in gpu.alive(gpu.moment):
        category = category_of(life, phases)
        categories["other" if category in _OTHER else f"{category}"] += life.size_bytes
        frame = user_frame(life.frames) or next(filter(is_python, life.frames), None)
        where = None
        if frame is not None:
            name = str(frame.get("name", ""))
            where = (_short(frame["filename"]), int(frame.get("line", 0)), name)
        lines[where] += life.size_bytes
    peak_bytes = gpu.allocated_bytes[gpu.moment]
    reserved_bytes = max(gpu.reserved_bytes)
    return {
        "index": gpu.device,
        "context_bytes": 1,  # used; how large the context was is unknown
        "needed_bytes": reserved_bytes,
        "peak_reserved_bytes": reserved_bytes,
        "peak_allocated_bytes": peak_bytes,
        "category_bytes": dict(categories),
        "lines": [
            {
                "line": where and {"filename": where[0], "line": where[1], "function": where[2]},
                "size_bytes": size_bytes,
            }
            for where, size_bytes in lines.items()
        ],
    }


def without_sources(report: dict[str, Any]) -> dict[str, Any]:
    """Reduce a report to what a snapshot has as well: no CUDA context, and no text of a line."""
    return {
        **report,
        "folder": "",
        "devices": [
            {
                **device,
                "needed_bytes": device["peak_reserved_bytes"],
                "lines": [
                    {
                        "line": use["line"]
                        and {**use["line"], "filename": _short(use["line"]["filename"])},
                        "size_bytes": use["size_bytes"],
                    }
                    for use in device["lines"]
                ],
            }
            for device in report["devices"]
        ],
    }


def _short(filename: str) -> str:
    """Keep the last folder: two machines rarely have the program in the same place."""
    return "/".join(re.split(r"[/\\]", filename)[-2:])
