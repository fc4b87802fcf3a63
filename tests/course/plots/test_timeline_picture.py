"""What the picture of a timeline draws, read from its artists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.text import Annotation, Text

from vramlab.measure import (
    BlockLife,
    OutOfMemoryEvent,
    Sighting,
    Timeline,
    TimelineStage,
)
from vramlab.units import MIB
from vramlab_course.plots import Picture, draw_timeline, largest_born
from vramlab_course.plots.style import ALARM, text_width_in


def life(mib: int, born: int, freed: int | None) -> BlockLife:
    size = mib * MIB
    return BlockLife(1000 + born, size, size, size, 0, born, freed, ())


TIMELINE = Timeline(
    device=0,
    event_count=4,
    blocks=(life(4, -1, None), life(8, 0, 3), life(2, 1, 2)),
    stages=(TimelineStage("forward", 0, 2), TimelineStage("backward", 2, 4)),
    sightings=(
        Sighting(0, 999, "parameters", "weight"),
        *(Sighting(2, 1000 + born, "activations", "saved by ReluBackward0") for born in (0, 1)),
    ),
    allocated_bytes=(4 * MIB, 12 * MIB, 14 * MIB, 12 * MIB, 4 * MIB),
    reserved_bytes=(20 * MIB,) * 5,
    out_of_memory=(),
    measured_peak_bytes=14 * MIB,
)


def areas(picture: Picture) -> dict[str, float]:
    """Area of each category in MiB x events."""
    found = {}
    for collection in picture.axes[0].collections:
        if isinstance(collection, PolyCollection):
            (path,) = collection.get_paths()
            x, y = np.asarray(path.vertices).T
            area = 0.5 * abs(np.dot(x, np.roll(y, 1)) - np.dot(y, np.roll(x, 1)))
            found[str(collection.get_label())] = float(area)
    return found


def written(picture: Picture) -> list[str]:
    return [text.get_text() for text in picture.axes[0].texts]


def test_areas_are_bytes_times_events() -> None:
    # parameters 4 MiB for 4 events; activations: 8 MiB from 1 to 4, and 2 MiB from 2 to 3
    assert areas(draw_timeline(TIMELINE)) == {"parameters": 16.0, "activations": 8 * 3 + 2 * 1}


def test_stages_and_peak_are_named() -> None:
    assert written(draw_timeline(TIMELINE)) == [
        "forward",
        "backward",
        "parameters",  # in their areas
        "activations",
        "peak 14 MiB",
    ]


def test_reserved_and_capacity_are_lines() -> None:
    picture = draw_timeline(TIMELINE, capacity_bytes=64 * MIB)
    lines = {str(line.get_label()): line for line in picture.axes[0].get_lines()}
    assert np.asarray(lines["reserved"].get_ydata()).tolist() == [20.0] * 5
    assert np.asarray(lines["memory of the GPU"].get_ydata()).tolist() == [64.0] * 5
    assert picture.axes[0].get_ylim()[1] > 64
    without = draw_timeline(TIMELINE, show_reserved=False)
    assert "reserved" not in [str(line.get_label()) for line in without.axes[0].get_lines()]


def test_the_marker_stands_at_the_peak() -> None:
    (marker,) = (
        line for line in draw_timeline(TIMELINE).axes[0].get_lines() if line.get_marker() == "v"
    )
    assert (np.asarray(marker.get_xdata()).tolist(), np.asarray(marker.get_ydata()).tolist()) == (
        [2],
        [14.0],
    )


def test_names_of_short_stages_do_not_overlap() -> None:
    # three stages of one event each among 100: about 0.08 inches for each name
    stages = tuple(
        TimelineStage(name, i, i + 1) for i, name in enumerate(("first", "second", "third"))
    )
    timeline = replace(
        TIMELINE,
        event_count=100,
        stages=stages,
        allocated_bytes=(4 * MIB,) * 101,
        reserved_bytes=(20 * MIB,) * 101,
        blocks=(life(4, -1, None),),
    )
    texts = draw_timeline(timeline).axes[0].texts
    levels = {
        text.get_text(): text.get_position()[1]
        for text in texts
        if text.get_text() in ("first", "second", "third")
    }
    assert levels == {"first": 4, "second": 4 + 11, "third": 4 + 22}


def test_words_on_two_failures_stand_apart_above_all_areas() -> None:
    timeline = replace(
        TIMELINE,
        event_count=100,
        stages=(),
        allocated_bytes=(4 * MIB,) * 101,
        reserved_bytes=(20 * MIB,) * 101,
        blocks=(life(4, -1, None),),
        out_of_memory=(OutOfMemoryEvent(6, 8 * MIB, 0), OutOfMemoryEvent(8, MIB, 0)),
    )
    texts = {text.get_text(): text for text in draw_timeline(timeline).axes[0].texts}
    first, second = (
        texts[f"out of memory: {size} more were asked for"].get_position()[1]
        for size in ("8 MiB", "1 MiB")
    )
    # 20 MiB are reserved. Of the height that is drawn, a line of words has a tenth.
    assert first - second > 2
    assert second > 20
    # The name of an area keeps off both lines: it begins right of the second one.
    half = text_width_in("parameters") / 2 * 100 / 8.3  # 8.3 inches are 100 events
    assert texts["parameters"].get_position()[0] - half > 8


def test_a_note_points_at_a_block_and_says_its_size() -> None:
    number = largest_born(TIMELINE, "forward")
    picture = draw_timeline(TIMELINE, notes={number: "what relu saved"})
    assert "what relu saved: 8 MiB" in written(picture)
    assert picture.alt.endswith(" what relu saved: 8 MiB.")
    with pytest.raises(ValueError, match="no block is taken in stage 'backward'"):
        largest_born(TIMELINE, "backward")


def test_the_largest_of_a_category_is_found() -> None:
    # 4 MiB of parameters were there before, 8 and 2 MiB of activations are born in forward.
    assert largest_born(TIMELINE, category="parameters") == 0
    assert largest_born(TIMELINE, "forward", "activations") == 1
    with pytest.raises(ValueError, match="no block of gradients is taken in stage 'forward'"):
        largest_born(TIMELINE, "forward", "gradients")


def test_notes_share_a_line_where_they_do_not_touch() -> None:
    timeline = replace(
        TIMELINE,
        event_count=100,
        stages=(),
        allocated_bytes=(4 * MIB,) * 101,
        reserved_bytes=(20 * MIB,) * 101,
        blocks=(life(4, 0, None), life(4, 49, None), life(4, 99, None)),
        out_of_memory=(),
    )
    notes = dict.fromkeys(range(3), "a block that has words of its own")
    axes = draw_timeline(timeline, notes=notes).axes[0]
    heights = [t.get_position()[1] for t in axes.texts if t.get_text().startswith("a block")]
    # "... : 4 MiB" takes about 2.5 of 8.3 inches. From the left, from the right: these share a
    # line. The third begins in the middle, and would touch that which ends at the right.
    assert heights[0] == heights[1] > heights[2]


def struck(picture: Picture) -> list[str]:
    """What lies over the label of the peak when the picture is drawn: arrows, lines, notes."""
    picture.draw_without_rendering()
    axes = picture.axes[0]
    label = next(text for text in axes.texts if text.get_text().startswith("peak"))
    box = Text.get_window_extent(label)  # an annotation's own has its arrow in it
    found = []
    for text in axes.texts:
        if not isinstance(text, Annotation) or text.arrow_patch is None or text is label:
            continue
        arrow = text.arrow_patch.get_transform().transform_path(text.arrow_patch.get_path())
        if arrow.intersects_bbox(box, filled=False) or box.overlaps(Text.get_window_extent(text)):
            found.append(text.get_text())
    for line in axes.lines:
        is_upright = len(set(np.asarray(line.get_xdata()).tolist())) == 1
        if is_upright and line.get_color() == ALARM:
            path = line.get_transform().transform_path(line.get_path())
            found += ["a request that failed"] * path.intersects_bbox(box, filled=False)
    return found


@pytest.mark.parametrize("peak_at", [3, 30, 50, 70, 97])
@pytest.mark.parametrize("failed_at", [(), (2,), (-3, 3), (-12, -6, 6, 12)])
def test_no_arrow_or_line_lies_over_the_label_of_the_peak(
    peak_at: int, failed_at: tuple[int, ...]
) -> None:
    # A peak of 100 MiB over 60; notes point at blocks beside it, and there requests fail.
    born = [position for position in (peak_at - 8, peak_at - 1, peak_at + 4) if 0 <= position < 99]
    allocated = [60 * MIB] * 101
    allocated[peak_at] = 100 * MIB
    timeline = replace(
        TIMELINE,
        event_count=100,
        stages=(),
        sightings=(),
        allocated_bytes=tuple(allocated),
        reserved_bytes=(100 * MIB,) * 101,
        blocks=(life(60, -1, None), *(life(1, position, None) for position in born)),
        out_of_memory=tuple(
            OutOfMemoryEvent(peak_at + beside, MIB, 0)
            for beside in failed_at
            if 0 <= peak_at + beside <= 100
        ),
    )
    notes = {number + 1: f"block number {number + 1}" for number in range(len(born))}
    assert struck(draw_timeline(timeline, notes=notes)) == []


def test_blocks_can_have_a_name_of_their_own() -> None:
    """Of 8 + 2 MiB of temporaries, the 8 MiB that live over three events are called gathered."""
    picture = draw_timeline(
        TIMELINE, show_reserved=False, names={1: "gathered parameters", 2: "gradient computed"}
    )
    assert areas(picture)["gathered parameters"] == pytest.approx(8 * 3)
    assert "gathered parameters 8 MiB, gradient computed 2 MiB" in picture.alt
    assert "activations" not in areas(picture)
