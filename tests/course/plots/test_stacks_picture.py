"""What the stacked bars show, read from their artists."""

from __future__ import annotations

import pytest
from matplotlib.colors import to_hex
from matplotlib.patches import Rectangle
from matplotlib.text import Annotation

from vramlab.measure import Category
from vramlab.units import MIB
from vramlab_course.plots import Picture, draw_stacks
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


def test_looks_can_be_given_and_then_say_the_order() -> None:
    looks = {"second": Look(FAINT), "first": Look(GREY, "//")}
    picture = draw_stacks({"row": {"first": MIB, "second": MIB}}, title="Bars", looks=looks)
    names = [text.get_text() for text in picture.axes[0].texts]
    assert names == ["second 1 MiB", "first 1 MiB", "2 MiB"]
    with pytest.raises(ValueError, match="no look is given for third"):
        draw_stacks({"row": {"third": MIB}}, title="Bars", looks=looks)
