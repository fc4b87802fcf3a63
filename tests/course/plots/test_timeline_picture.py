"""What the picture of a timeline draws, read from its artists."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from vramlab.measure import (
    BlockLife,
    Category,
    OutOfMemoryEvent,
    Sighting,
    Timeline,
    TimelineStage,
)
from vramlab.units import MIB
from vramlab_course.plots import Picture, describe_timeline, draw_timeline, largest_born
from vramlab_course.plots.style import CATEGORY_LOOKS


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


def test_words_beside_two_failures_stand_apart_and_off_the_names_of_areas() -> None:
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
    # 2 of 100 events are 0.17 inches: less than the height of a line and what is around it
    sides = [
        texts[f"out of memory: {size} more were asked for"].get_ha() for size in ("8 MiB", "1 MiB")
    ]
    assert sides == ["right", "left"]
    # "parameters" is 10 * 0.6 * 8 / 72 inches wide: 8 of 100 events. It would begin at 0.
    assert texts["parameters"].get_position()[0] - 4 > 8


def test_axes_have_units() -> None:
    axes = draw_timeline(TIMELINE).axes[0]
    assert axes.get_ylabel() == "MiB"
    assert axes.get_xlabel() == ("time, in allocations and frees")


def test_every_category_has_a_hatch_or_a_colour_of_its_own() -> None:
    assert set(CATEGORY_LOOKS) == set(Category)
    looks = [(look.color, look.hatch) for look in CATEGORY_LOOKS.values()]
    assert len(set(looks)) == len(looks)


def test_words_hold_peak_breakdown_and_stages() -> None:
    assert describe_timeline(TIMELINE, title="One step") == (
        "One step, over 4 allocator events: allocated bytes begin at 4 MiB, peak at 14 MiB at "
        "event 2 in stage 'forward', and end at 4 MiB. At the peak: parameters 4 MiB, activations "
        "10 MiB. Reserved at the end: 20 MiB. After 'forward': 14 MiB allocated. After 'backward': "
        "4 MiB allocated."
    )
    assert draw_timeline(TIMELINE, title="One step").alt == describe_timeline(
        TIMELINE, title="One step"
    )


def test_an_empty_timeline_is_drawn() -> None:
    empty = Timeline(0, 0, (), (), (), (0,), (0,), ())
    assert "peak at 0 B" in draw_timeline(empty).alt


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


def test_a_stage_without_events_has_no_name_over_the_next() -> None:
    nothing = TimelineStage("nothing", 2, 2)
    timeline = replace(TIMELINE, stages=(TIMELINE.stages[0], nothing, TIMELINE.stages[1]))
    assert "nothing" not in written(draw_timeline(timeline))
