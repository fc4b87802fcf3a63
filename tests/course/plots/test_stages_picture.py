"""What the bars of a result show, read from their artists."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.patches import Rectangle

from vramlab.measure import Expectation, Published, Result, StageMeasurement
from vramlab.units import KIB, MIB
from vramlab_course.plots import Picture, draw_stages

FORWARD = StageMeasurement(
    name="forward",
    allocated_before_bytes=56 * MIB,
    allocated_after_bytes=224 * MIB,
    peak_allocated_bytes=224 * MIB,
    reserved_before_bytes=60 * MIB,
    reserved_after_bytes=240 * MIB,
    peak_reserved_bytes=240 * MIB,
    device_used_after_bytes=700 * MIB,
    expectations=(
        Expectation("growth", 160 * MIB, Published(168.0, "MiB", "001")),
        Expectation("peak", 224 * MIB),
    ),
)
RESULT = Result("one step", "Tesla T4", True, "2.13.0", (FORWARD,))


def bars(picture: Picture) -> list[tuple[str, float]]:
    return [
        (str(container.get_label()), patch.get_width())
        for container in picture.axes[0].containers
        for patch in container
        if isinstance(patch, Rectangle)
    ]


def test_each_expected_number_has_a_group_of_bars() -> None:
    picture = draw_stages(RESULT)
    assert bars(picture) == [
        ("predicted", 160.0),
        ("measured", 168.0),  # 224 - 56
        ("published", 168.0),
        ("predicted", 224.0),
        ("measured", 224.0),
    ]
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == [
        "forward (growth)",
        "forward (peak)",
    ]
    assert picture.axes[0].get_xlabel() == "MiB"
    assert [text.get_text() for text in picture.legends[0].get_texts()] == [
        "predicted",
        "measured",
        "published",
    ]


def test_a_stage_of_which_nothing_is_expected_shows_its_growth() -> None:
    result = replace(RESULT, stages=(replace(FORWARD, expectations=()),))
    assert bars(draw_stages(result)) == [("measured", 168.0)]


def test_shrinking_memory_is_a_bar_to_the_left() -> None:
    stage = replace(
        FORWARD,
        allocated_before_bytes=8 * KIB,
        allocated_after_bytes=2 * KIB,
        expectations=(Expectation("growth", -6 * KIB),),
    )
    axes = draw_stages(replace(RESULT, stages=(stage,))).axes[0]
    assert axes.get_xlabel() == "KiB"
    assert axes.get_xlim()[0] < -6
    assert [text.get_text() for text in axes.texts] == ["-6 KiB", "-6 KiB"]
