"""The virtual GPU that a recording's machine had: the same sizes, the same PyTorch's rules."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.errors import UnknownGPUError
from vramlab.recordings.store import RecordingFile
from vramlab.recordings.worker import as_data

PROPERTY_FIELDS = {
    "total_memory": "total_bytes",
    "multi_processor_count": "multiprocessors",
    "max_threads_per_multi_processor": "max_threads_per_multiprocessor",
    "max_threads_per_block": "max_threads_per_block",
    "warp_size": "warp_size",
    "regs_per_multiprocessor": "registers_per_multiprocessor",
    "shared_memory_per_block": "shared_memory_per_block_bytes",
    "shared_memory_per_block_optin": "shared_memory_per_block_optin_bytes",
    "shared_memory_per_multiprocessor": "shared_memory_per_multiprocessor_bytes",
    "L2_cache_size": "l2_cache_bytes",
    "clock_rate": "clock_rate_khz",
    "memory_clock_rate": "memory_clock_rate_khz",
    "memory_bus_width": "memory_bus_width_bits",
}
"""Device properties, and the fields of `GPUModel` that they are."""


def gpu_model(recording: RecordingFile) -> GPUModel:
    """Return the recorded GPU: the catalogue's, with what the recording says of this one.

    A GPU that is not in the catalogue gets what the recording does not tell (bandwidths, FLOP/s:
    nothing that memory depends on) from the one there that is nearest in compute capability.
    """
    properties = recording.machine["properties"]
    try:
        known = catalogue.find_device(recording.machine["gpu"], properties["total_memory"])
    except UnknownGPUError:
        known = _nearest((properties["major"], properties["minor"]))
    said: dict[str, Any] = {
        field: properties[name] for name, field in PROPERTY_FIELDS.items() if name in properties
    }
    context_bytes = _context_bytes(recording)
    if context_bytes is not None:
        said["context_bytes"] = context_bytes
    if recording.machine.get("nvml_total_bytes"):
        said["nvml_total_bytes"] = recording.machine["nvml_total_bytes"]
    source = f"recording {recording.path.name}"
    return replace(
        known,
        name=known.name if known.product_name == recording.machine["gpu"] else properties["name"],
        product_name=recording.machine["gpu"],
        compute_capability=(properties["major"], properties["minor"]),
        sources={**known.sources, **dict.fromkeys(said, source)},
        **said,
    )


@contextmanager
def environment(machine: Mapping[str, Any]) -> Iterator[None]:
    """Have the settings that the recorded process had, and no others that matter."""
    from vramlab.recordings.machine import SETTINGS

    with mock.patch.dict("os.environ", machine.get("settings", {})):
        import os

        for name in SETTINGS:
            if name not in machine.get("settings", {}):
                os.environ.pop(name, None)
        yield


def measure_on_twin(recording: RecordingFile, entry: str) -> dict[str, Any]:
    """Run an entry on the virtual GPU that stands for the recorded one.

    Returns:
        `entry`, `trace` and `statistics`, in the form of `worker.as_data`.
    """
    from vramlab.gpu import VirtualGPU
    from vramlab.recordings.measuring import measure

    gc.collect()
    with (
        environment(recording.machine),
        VirtualGPU(gpu_model(recording), torch_version=recording.machine["torch"]),
    ):
        return as_data(measure(entry))


def _nearest(capability: tuple[int, int]) -> GPUModel:
    def distance(model: GPUModel) -> tuple[int, int]:
        major, minor = model.compute_capability
        return abs(major - capability[0]), abs(minor - capability[1])

    return min(catalogue.models(), key=distance)


def _context_bytes(recording: RecordingFile) -> int | None:
    """Look up what the context took when there was nothing else yet, if it was recorded."""
    entry = recording.entries.get("context")
    for moment in (entry.moments or ()) if entry else ():
        if moment["moment"] == "synchronize":
            used_bytes: int | None = moment["used_bytes"]
            return used_bytes
    return None
