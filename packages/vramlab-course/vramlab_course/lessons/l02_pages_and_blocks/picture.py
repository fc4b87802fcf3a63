"""From the driver to a tensor: segments, the blocks in them, and whose they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vramlab.units import short_size
from vramlab_course.plots import style
from vramlab_course.plots.diagram import Box, Diagram
from vramlab_course.plots.picture import WIDTH_IN, Picture
from vramlab_course.plots.segments import Snapshot, segments_of
from vramlab_course.plots.style import Look, size_label

_LEFT_IN = 1.35
_GAP_IN = 0.25
_MOST = 4
_NARROWEST_IN = 0.62
_TENSOR = style.TENSORS_LOOK
_FREE = Look("white")
_LEVELS = {3.2: "the driver", 2.25: "segments", 1.3: "blocks", 0.35: "tensors"}
_HEIGHT_IN = 0.5


def draw_hierarchy(
    snapshot: Snapshot, names: Mapping[int, str], *, device: int = 0, title: str = ""
) -> Picture:
    """Draw what the driver has given, cut into segments, blocks and tensors; not to scale.

    For example `draw_hierarchy(torch.cuda.memory_snapshot(), {x.data_ptr(): "x"})`, where a few
    tensors live.

    Args:
        snapshot: torch.cuda.memory._snapshot(), or its segments.
        names: of tensors, by their address.
        device: index of the GPU.
        title: what is to be seen; the default counts.

    Raises:
        ValueError: there are no segments, or more than four.
    """
    segments = segments_of(snapshot, device)
    if not 1 <= len(segments) <= _MOST:
        raise ValueError(
            f"{len(segments)} segments; 1 to {_MOST} can be drawn: call it where few tensors live"
        )
    title = title or _finding(segments)
    diagram = Diagram(3.95, title)
    for y, level in _LEVELS.items():
        diagram.write(0.25, y + _HEIGHT_IN / 2, level, ha="left", small=False, bold=True)
    driver_y, segment_y, block_y, tensor_y = _LEVELS
    width = WIDTH_IN - _LEFT_IN - 0.3
    reserved_bytes = sum(segment["total_size"] for segment in segments)
    driver = diagram.box(
        _LEFT_IN,
        driver_y,
        width,
        _HEIGHT_IN,
        f"cudaMalloc: {size_label(reserved_bytes)}, counted by memory_reserved()",
        Look(style.PALE),
    )
    each = (width - _GAP_IN * (len(segments) - 1)) / len(segments)
    for number, segment in enumerate(segments):
        x = _LEFT_IN + number * (each + _GAP_IN)
        words = f"{segment['segment_type']} pool: {size_label(segment['total_size'])}"
        box = diagram.box(x, segment_y, each, _HEIGHT_IN, words, _FREE)
        diagram.arrow((box.top[0], driver.y), box.top)
        blocks = _merged(_with_addresses(segment), int(each / _NARROWEST_IN))
        for block, (left, share) in zip(blocks, _shares(blocks, each), strict=True):
            free = block["state"] == "inactive"
            words = f"{size_label(block['size'])}\n{'free' if free else 'allocated'}"
            look = _FREE if free else _TENSOR
            place = diagram.box(x + left, block_y, share, _HEIGHT_IN, words, look)
            diagram.arrow((place.top[0], segment_y), place.top)
            if not free:
                name = names.get(block["address"], "a tensor")
                _draw_tensor(diagram, place, tensor_y, block, name)
    return diagram.finish(describe_hierarchy(snapshot, names, device=device, title=title))


def describe_hierarchy(
    snapshot: Snapshot, names: Mapping[int, str], *, device: int = 0, title: str = ""
) -> str:
    """Describe what `draw_hierarchy` draws."""
    segments = segments_of(snapshot, device)
    sentences = [f"{title or _finding(segments)}."]
    for segment in segments:
        parts = []
        for block in _with_addresses(segment):
            whose = names.get(block["address"], "a tensor")
            held = "free" if block["state"] == "inactive" else f"with {whose}"
            parts.append(f"a block of {short_size(block['size'])}, {held}")
        sentences.append(f"Segment of {short_size(segment['total_size'])}: {'; '.join(parts)}.")
    return " ".join(sentences)


def _finding(segments: list[Mapping[str, Any]]) -> str:
    reserved_bytes = sum(segment["total_size"] for segment in segments)
    allocated_bytes = sum(segment["allocated_size"] for segment in segments)
    return (
        f"The driver gave {size_label(reserved_bytes)}; blocks in use take "
        f"{size_label(allocated_bytes)} of it"
    )


def _with_addresses(segment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the blocks of a segment; older snapshots do not say where they lie."""
    blocks: list[Mapping[str, Any]] = []
    address = segment["address"]
    for block in segment["blocks"]:
        blocks.append({**block, "address": address})
        address += block["size"]
    return blocks


def _merged(blocks: list[Mapping[str, Any]], most: int) -> list[Mapping[str, Any]]:
    """Return the first blocks and the last, without those between if there are too many."""
    return blocks if len(blocks) <= most else [*blocks[: most - 1], blocks[-1]]


def _shares(blocks: list[Mapping[str, Any]], width_in: float) -> list[tuple[float, float]]:
    """Where each block begins and how wide it is: by size, but wide enough to be read."""
    total = sum(block["size"] for block in blocks)
    spare = width_in - _NARROWEST_IN * len(blocks)
    places, left = [], 0.0
    for block in blocks:
        share = _NARROWEST_IN + spare * block["size"] / total
        places.append((left, share - 0.04))
        left += share
    return places


def _draw_tensor(
    diagram: Diagram, block: Box, y: float, entry: Mapping[str, Any], name: str
) -> None:
    words = f"{name}\n{size_label(entry['requested_size'])}"
    tensor = diagram.box(block.x, y, block.width, _HEIGHT_IN, words, _TENSOR)
    diagram.arrow(block.bottom, tensor.top)
