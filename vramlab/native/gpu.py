"""Describe a GPU of the catalogue to the substitute libraries."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Literal

from vramlab.catalogue import GPUModel
from vramlab.cuda_rules.first_uses import CODE_ROOM_BYTES, first_uses
from vramlab.native.errors import NativeEngineError

Streams = Literal["early", "late"]
"""When events complete: at once, or only when the program waits for something."""

MOST_GPUS = 16
"""`MAX_DEVICES` in csrc/core/core.h."""

_FIGURES = (
    "total_bytes",
    "nvml_total_bytes",
    "context_bytes",
    "multiprocessors",
    "max_threads_per_multiprocessor",
    "max_blocks_per_multiprocessor",
    "max_threads_per_block",
    "warp_size",
    "registers_per_multiprocessor",
    "shared_memory_per_multiprocessor_bytes",
    "shared_memory_per_block_bytes",
    "shared_memory_per_block_optin_bytes",
    "l2_cache_bytes",
    "clock_rate_khz",
    "memory_clock_rate_khz",
    "memory_bus_width_bits",
    "pci_device_id",
)
"""Fields of `GPUModel` that csrc/core/description.c reads under their own names."""


def describe(
    model: GPUModel, count: int = 1, streams: Streams = "early", host_bytes: int | None = None
) -> str:
    """Write the text of VRAMLAB_NATIVE_GPU: `name=value` pairs with `;` between them.

    Args:
        model: the GPU.
        count: how many of it, 1 to 16.
        streams: when events complete.
        host_bytes: what a process may take of the host's memory when data is copied to a GPU; by
            default, half of what is available now.

    Raises:
        NativeEngineError: too few or too many GPUs.
    """
    if not 1 <= count <= MOST_GPUS:
        raise NativeEngineError(f"invalid number of GPUs {count}: use 1 to {MOST_GPUS}.")
    major, minor = model.compute_capability
    figures: dict[str, object] = {
        "name": model.product_name,
        "count": count,
        "late": int(streams == "late"),
        "host_bytes": available_host_bytes() // 2 if host_bytes is None else host_bytes,
        "major": major,
        "minor": minor,
    }
    figures |= {name: getattr(model, name) for name in _FIGURES}
    figures |= {"code_room_bytes": CODE_ROOM_BYTES, **asdict(first_uses(model))}
    return ";".join(f"{name}={value}" for name, value in figures.items())


def described_count(text: str) -> int:
    """Read from a text of `describe` how many GPUs there are."""
    pairs = dict(pair.split("=", 1) for pair in text.split(";"))
    return int(pairs["count"])


def available_host_bytes() -> int:
    """Read how much memory this machine, or the container this runs in, has left."""
    free_bytes = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable:"):
            free_bytes = int(line.split()[1]) * 1024
    limit = "".join(_lines(Path("/sys/fs/cgroup/memory.max"))).strip()
    return min(free_bytes, int(limit)) if limit.isdigit() else free_bytes


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return []
