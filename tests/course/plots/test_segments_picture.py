"""What the picture of segments draws, read from its artists."""

from __future__ import annotations

from typing import Any

from matplotlib.patches import Rectangle

from vramlab.units import KIB, MIB
from vramlab_course.plots import Picture, draw_segments

ADDRESS = 0x7F00_0000_0000


def block(size: int, state: str = "inactive", requested: int = 0) -> dict[str, Any]:
    return {"size": size, "requested_size": requested, "state": state}


def live(size: int, requested: int | None = None) -> dict[str, Any]:
    return block(size, "active_allocated", size if requested is None else requested)


def segment(pool: str, *blocks: dict[str, Any], **extra: Any) -> dict[str, Any]:
    return {
        "device": 0,
        "address": ADDRESS,
        "total_size": sum(entry["size"] for entry in blocks),
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "stream": 0,
        "segment_type": pool,
        "blocks": list(blocks),
    } | extra


def boxes(picture: Picture, axes: int = 0) -> list[tuple[str, float, float, float]]:
    """(kind, start, width, row) of every box in one of the picture's axes."""
    return [
        (str(container.get_label()), patch.get_x(), patch.get_width(), round(patch.get_y() + 0.35))
        for container in picture.axes[axes].containers
        for patch in container
        if isinstance(patch, Rectangle)
    ]


def texts(picture: Picture, axes: int = 0) -> list[str]:
    return [text.get_text() for text in picture.axes[axes].texts]


def test_blocks_tile_their_segment_to_scale() -> None:
    # 10 MiB asked for of a block of 12: 2 MiB were not worth splitting off; then 8 MiB free
    picture = draw_segments([segment("large", live(12 * MIB, 10 * MIB), block(8 * MIB))])
    assert boxes(picture) == [
        ("allocated", 0, 10, 0),
        ("rounded up or not split off", 10, 2, 0),
        ("free (cached)", 12, 8, 0),
    ]
    assert texts(picture) == ["10 MiB", "8 MiB free"]
    assert picture.axes[0].get_xlabel() == "MiB from the start of the segment"


def test_pools_have_scales_of_their_own_and_large_segments_come_first() -> None:
    picture = draw_segments(
        {
            "segments": [
                segment("small", live(512 * KIB), block(1536 * KIB)),
                segment("large", block(20 * MIB)),
                segment("large", live(40 * MIB), stream=0x55),
            ]
        }
    )
    large, small = picture.axes
    assert large.get_title(loc="left") == "large pool: 2 segments"
    assert small.get_title(loc="left") == "small pool: 1 segment"
    assert [label.get_text() for label in large.get_yticklabels()] == [
        "40 MiB\nstream 0x55",
        "20 MiB",
    ]
    assert boxes(picture, 0) == [("allocated", 0, 40, 0), ("free (cached)", 0, 20, 1)]
    assert boxes(picture, 1) == [("allocated", 0, 0.5, 0), ("free (cached)", 0.5, 1.5, 0)]


def test_names_stand_in_their_blocks() -> None:
    picture = draw_segments(
        [segment("large", live(6 * MIB), live(14 * MIB))], names={ADDRESS + 6 * MIB: "y"}
    )
    assert texts(picture) == ["6 MiB", "y 14 MiB"]


def test_segments_that_look_the_same_share_a_row() -> None:
    same = [
        segment("large", live(4 * MIB), block(16 * MIB), address=at * 64 * MIB) for at in range(5)
    ]
    picture = draw_segments([*same, segment("large", block(20 * MIB), address=0)])
    assert rows(picture) == ["5 x 20 MiB", "20 MiB"]
    assert picture.axes[0].get_title(loc="left") == "large pool: 6 segments"
    assert "5 large segments of 20 MiB, each: 4 MiB allocated, 16 MiB free (cached)." in picture.alt
    # a name makes a segment different; and up to four have a row each
    assert rows(draw_segments(same, names={0: "x"})) == ["20 MiB"] * 5


def rows(picture: Picture) -> list[str]:
    return [label.get_text() for label in picture.axes[0].get_yticklabels()]
