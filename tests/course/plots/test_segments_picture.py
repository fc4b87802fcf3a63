"""What the picture of segments draws, read from its artists."""

from __future__ import annotations

from typing import Any

from matplotlib.patches import Rectangle

from vramlab.units import KIB, MIB
from vramlab_course.plots import Picture, describe_segments, draw_segments

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


def test_a_block_that_waits_for_a_stream_is_drawn_as_such() -> None:
    waiting = block(4 * MIB, "active_pending_free", 4 * MIB)
    picture = draw_segments([segment("large", waiting, block(16 * MIB))])
    assert boxes(picture)[0] == ("freed, another stream still uses it", 0, 4, 0)


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


def test_a_label_that_does_not_fit_is_left_out_but_told_in_words() -> None:
    segments = [segment("large", live(64 * KIB), live(20 * MIB - 64 * KIB))]
    picture = draw_segments(segments)
    assert texts(picture) == ["19.94 MiB"]
    assert "64 KiB allocated" in picture.alt


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


def test_a_name_stands_in_its_block_where_its_size_has_no_room() -> None:
    picture = draw_segments(
        [segment("large", live(50 * MIB), block(500 * MIB))], names={ADDRESS: "pinned"}
    )
    assert texts(picture) == ["pinned", "500 MiB free"]


def rows(picture: Picture) -> list[str]:
    return [label.get_text() for label in picture.axes[0].get_yticklabels()]


def test_more_rows_than_fit_are_counted() -> None:
    segments = [segment("large", block(size * MIB)) for size in (20, 22, 24, 20, 26)]
    picture = draw_segments(segments, most=2)
    assert boxes(picture) == [("free (cached)", 0, 26, 0), ("free (cached)", 0, 24, 1)]
    title = "large pool: 5 segments, 3 of them not drawn"
    assert picture.axes[0].get_title(loc="left") == title
    assert picture.alt.endswith("Not listed: 3 segments.")


def test_many_blocks_are_summed_up_in_words() -> None:
    crowded = segment("small", *[live(4 * KIB)] * 20, block(2 * MIB - 80 * KIB))
    assert describe_segments([crowded]).endswith(
        "Small segment of 2 MiB: 80 KiB allocated in 20 pieces, 1.922 MiB free (cached) in 1 piece."
    )


def test_other_devices_are_left_out() -> None:
    segments = [segment("large", block(20 * MIB)), segment("small", block(2 * MIB), device=1)]
    assert len(draw_segments(segments, device=1).axes) == 1
    assert "1 segment, 2 MiB reserved" in describe_segments(segments, device=1)


def test_nothing_reserved_is_said() -> None:
    picture = draw_segments([])
    assert texts(picture) == ["no segments: nothing is reserved"]
    assert picture.alt == "The allocator's segments: 0 segments, 0 B reserved, 0 B allocated."


def test_words_hold_all_numbers() -> None:
    words = describe_segments(
        [segment("large", live(12 * MIB, 10 * MIB), block(8 * MIB))],
        names={ADDRESS: "x"},
        title="After the forward pass",
    )
    assert words == (
        "After the forward pass: 1 segment, 20 MiB reserved, 12 MiB allocated. "
        "Large segment of 20 MiB: x 10 MiB allocated, 2 MiB rounded up or not split off, "
        "8 MiB free (cached)."
    )


def test_the_legend_explains_what_is_there_and_does_not_say_it_itself() -> None:
    assert draw_segments([segment("large", live(12 * MIB), block(8 * MIB))]).legends == []
    picture = draw_segments([segment("large", live(12 * MIB, 10 * MIB), block(8 * MIB))])
    (legend,) = picture.legends
    assert [text.get_text() for text in legend.get_texts()] == ["rounded up or not split off"]


def test_of_equal_segments_that_with_the_highest_address_is_the_first() -> None:
    segments = [segment("large", live(20 * MIB), address=n * 64 * MIB) for n in (1, 2)]
    picture = draw_segments(segments, names={64 * MIB: "second", 128 * MIB: "first"})
    assert texts(picture) == ["first 20 MiB", "second 20 MiB"]
