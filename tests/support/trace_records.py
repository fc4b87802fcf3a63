"""Hand-made records in the form of torch.cuda.memory._snapshot()."""

from __future__ import annotations

from typing import Any

from vramlab.units import MIB

LARGE = 0x7F00_0000_0000
"""Address of a segment of the large pool."""
SMALL = 0x7F10_0000_0000
"""Address of a segment of the small pool."""


def frame(filename: str, line: int, name: str = "<module>") -> dict[str, Any]:
    return {"filename": filename, "line": line, "name": name}


def block(size: int, state: str = "inactive", requested: int = 0) -> dict[str, Any]:
    return {"size": size, "requested_size": requested, "state": state, "frames": []}


def live(size: int, requested: int | None = None) -> dict[str, Any]:
    return block(size, "active_allocated", size if requested is None else requested)


def segment(address: int, *blocks: dict[str, Any], device: int = 0, **extra: Any) -> dict[str, Any]:
    return {
        "device": device,
        "address": address,
        "total_size": sum(entry["size"] for entry in blocks),
        "stream": 0,
        "blocks": list(blocks),
    } | extra


def alloc(
    address: int, size: int, frames: list[dict[str, Any]] | None = None, stream: int = 0
) -> dict[str, Any]:
    return {
        "action": "alloc",
        "addr": address,
        "size": size,
        "stream": stream,
        "frames": frames or [],
    }


def free(address: int, size: int = 0) -> list[dict[str, Any]]:
    """What the allocator writes when a block is freed that no other stream uses."""
    return [event("free_requested", address, size), event("free_completed", address, size)]


def event(action: str, address: int, size: int) -> dict[str, Any]:
    return {"action": action, "addr": address, "size": size, "stream": 0, "frames": []}


def snapshots(
    segments: list[dict[str, Any]], events: list[dict[str, Any]], **settings: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The snapshot before some events, and one after them (its segments are not looked at)."""
    before = {"segments": segments, "device_traces": [[]], "allocator_settings": settings}
    return before, {"segments": [], "device_traces": [events]}


def training_step() -> tuple[dict[str, Any], dict[str, Any]]:
    """A step of a model with one 4 MiB parameter, by hand.

    Before: the parameter (4 MiB) at LARGE and 16 MiB free behind it.
    Forward: an 8 MiB activation and a 3 MiB temporary. Backward: a 4 MiB gradient where the
    temporary was. Counted events: 0 alloc, 1 alloc, 2 free | 3 alloc gradient, 4 free activation.
    """
    return snapshots(
        [segment(LARGE, live(4 * MIB), block(16 * MIB))],
        [
            alloc(LARGE + 4 * MIB, 8 * MIB, [frame("/home/me/train.py", 7, "forward")]),
            alloc(LARGE + 12 * MIB, 3 * MIB, [frame("/home/me/train.py", 8, "forward")]),
            *free(LARGE + 12 * MIB, 3 * MIB),
            alloc(LARGE + 12 * MIB, 4 * MIB),
            *free(LARGE + 4 * MIB, 8 * MIB),
        ],
    )
