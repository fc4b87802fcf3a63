"""What the stacked bars show, read from their artists."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from vramlab.measure import Category
from vramlab.units import GIB, MIB
from vramlab_course.plots import Picture, describe_stacks, draw_stacks
from vramlab_course.plots.style import CATEGORY_LOOKS, FAINT, GREY, Look

ROWS = {
    "first": {"inputs": 10 * MIB, "outputs": 30 * MIB},
    "second": {"inputs": 10 * MIB, "masks": 0, "outputs": 50 * MIB},
    "third": {"outputs": 20 * MIB},
}


def bars(picture: Picture) -> list[tuple[str, float, float, float]]:
    """Label, middle of the row, start and width of each."""
    return [
        (
            str(container.get_label()),
            round(patch.get_y() + patch.get_height() / 2, 6),
            patch.get_x(),
            patch.get_width(),
        )
        for container in picture.axes[0].containers
        for patch in container
        if isinstance(patch, Rectangle)
    ]


def test_parts_lie_end_to_end_in_their_row() -> None:
    assert bars(draw_stacks(ROWS, title="Layers")) == [
        ("inputs", 0, 0, 10),
        ("outputs", 0, 10, 30),
        ("inputs", 1, 0, 10),
        ("outputs", 1, 10, 50),
        ("outputs", 2, 0, 20),
    ]


def test_a_part_looks_the_same_in_every_row_and_sums_stand_at_the_ends() -> None:
    picture = draw_stacks(ROWS, title="Layers", capacity_bytes=64 * MIB)
    colors = {}
    for container in picture.axes[0].containers:
        for patch in container:
            colors.setdefault(container.get_label(), set()).add(patch.get_facecolor())
    assert {part: len(seen) for part, seen in colors.items()} == {"inputs": 1, "outputs": 1}
    sums = [text.get_text() for text in picture.axes[0].texts if isinstance(text, Annotation)]
    assert sums == ["40 MiB", "60 MiB", "20 MiB"]
    # The longest stretches of both have room for their names.
    labels = {text.get_text() for text in picture.axes[0].texts}
    assert {"inputs 10 MiB", "outputs 50 MiB"} <= labels
    assert [text.get_text() for text in picture.legends[0].get_texts()] == [
        "memory of the GPU: 64 MiB",
    ]


def test_the_legend_has_what_is_too_short_for_its_name_and_nothing_that_cannot_be_seen() -> None:
    picture = draw_stacks({"row": {"long": 600 * MIB, "short": 9 * MIB, "none": MIB}}, title="")
    # Of an axis of 708 MiB, 1 in 500 is more than 1 MiB.
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["short"]


def test_one_part_alone_needs_no_name() -> None:
    picture = draw_stacks({"one": {"peak": 4 * MIB}, "two": {"peak": 8 * MIB}}, title="")
    assert [text.get_text() for text in picture.axes[0].texts] == ["4 MiB", "8 MiB"]
    assert picture.legends == []


def test_equal_rows_are_drawn_once() -> None:
    layers = {f"layer {number}": {"outputs": MIB} for number in range(12)}
    picture = draw_stacks({"embeddings": {"outputs": 2 * MIB}, **layers}, title="Layers")
    names = [label.get_text() for label in picture.axes[0].get_yticklabels()]
    assert names == ["embeddings", "layer 0 to layer 11, each"]
    two = {"one": {"outputs": MIB}, "two": {"outputs": MIB}}
    assert len(draw_stacks(two, title="Two").axes[0].get_yticklabels()) == 2


def test_parts_of_one_category_have_tints_of_its_colour() -> None:
    parts = {"softmax": 3 * MIB, "mask": MIB, "context": MIB}
    picture = draw_stacks({"layer": parts}, title="A layer", of="activations")
    colors = [patch.get_facecolor() for patch in picture.axes[0].patches]
    assert len(set(colors)) == 3
    assert to_hex(colors[0]) == CATEGORY_LOOKS[Category.ACTIVATIONS].color.lower()
    assert all(red > green > blue for red, green, blue, _ in colors)  # oranges, all of them
    with pytest.raises(ValueError, match="13 parts of activations; at most 12"):
        draw_stacks({"layer": {str(n): MIB for n in range(13)}}, title="", of="activations")


def test_words_say_rows_that_are_alike_once() -> None:
    layers = {f"layer {number}": {"inputs": MIB} for number in range(3)}
    assert describe_stacks({**layers, "head": {"inputs": 0}}, title="A model") == (
        "A model. layer 0 to layer 2, each of 3: 1 MiB (inputs 1 MiB). head: 0 B (nothing)."
    )
    assert draw_stacks(ROWS, title="Layers").alt == describe_stacks(ROWS, title="Layers")


def test_what_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(ValueError, match="10 parts in one picture; at most 9"):
        draw_stacks({"row": {str(part): 1 for part in range(10)}}, title="Too many")
    with pytest.raises(ValueError, match="no row to draw"):
        draw_stacks({}, title="Nothing")


def test_looks_can_be_given_and_then_say_the_order() -> None:
    looks = {"second": Look(FAINT), "first": Look(GREY, "//")}
    picture = draw_stacks({"row": {"first": MIB, "second": MIB}}, title="Bars", looks=looks)
    names = [text.get_text() for text in picture.axes[0].texts]
    assert names == ["second 1 MiB", "first 1 MiB", "2 MiB"]
    with pytest.raises(ValueError, match="no look is given for third"):
        draw_stacks({"row": {"third": MIB}}, title="Bars", looks=looks)


def test_a_legend_of_long_names_has_as_many_columns_as_there_is_room_for() -> None:
    parts = {f"activations that layer {number} reads again": GIB for number in range(4)}
    picture = draw_stacks({"step": parts}, title="One step", capacity_bytes=8 * GIB)
    [legend] = picture.legends
    assert len(legend.get_texts()) == 5
    assert legend.get_window_extent().width <= picture.bbox.width
