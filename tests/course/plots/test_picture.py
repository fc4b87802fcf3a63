"""How a picture reaches a notebook, and which unit an axis has."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import matplotlib as mpl
import pytest

from packages import FOLDERS
from vramlab.measure import Category
from vramlab.units import GIB, KIB, MIB
from vramlab.viz.colors import CATEGORY_COLORS
from vramlab_course.plots.picture import new_picture
from vramlab_course.plots.style import (
    BACKWARD_LOOK,
    CACHED_LOOK,
    CATEGORY_LOOKS,
    FORWARD_LOOK,
    LINE_COLORS,
    MEASURED_LOOK,
    OTHER_LOOKS,
    OUTSIDE_LOOK,
    PREDICTED_LOOK,
    PUBLISHED_LOOK,
    RANK_LOOKS,
    TENSORS_LOOK,
    MemoryUnit,
    house_style,
    looks_for,
)

ROOT = Path(__file__).resolve().parents[3]


def test_html_has_real_alternative_text_and_a_png() -> None:
    picture = new_picture(1.0)
    picture.alt = 'Bars: "a" < 2 MiB & more'
    bundle = picture._repr_mimebundle_()
    html = bundle["text/html"]
    assert 'alt="Bars: &quot;a&quot; &lt; 2 MiB &amp; more"' in html
    assert 'width="900"' in html  # 9 inches at 100 pixels an inch
    (data,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    png = base64.b64decode(data)
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) == 1800  # twice as fine as shown
    assert bundle["text/plain"] == picture.alt


def test_house_style_leaves_matplotlib_as_it_was() -> None:
    before = mpl.rcParams["font.size"]
    with house_style():
        assert mpl.rcParams["font.size"] == 9.0
    assert mpl.rcParams["font.size"] == before


@pytest.mark.parametrize(
    ("largest_bytes", "unit"),
    [(600, "bytes"), (4 * KIB, "KiB"), (MIB, "KiB"), (2 * MIB, "MiB"), (80 * GIB, "GiB")],
)
def test_unit_of_an_axis(largest_bytes: int, unit: str) -> None:
    assert MemoryUnit.for_axis(largest_bytes).name == unit


def test_a_meaning_has_one_look_in_all_pictures() -> None:
    looks = looks_for(["logits", "gradients", "parameters of layer 1", "parameters of layer 2"])
    assert looks["gradients"] == CATEGORY_LOOKS[Category.GRADIENTS]
    assert looks["parameters of layer 1"] == CATEGORY_LOOKS[Category.PARAMETERS]
    second = looks["parameters of layer 2"]
    assert (second.color, second.hatch) == (CATEGORY_LOOKS[Category.PARAMETERS].color, "//")
    # what is no category has the colour of none that is there
    assert looks["logits"].color not in {look.color for n, look in looks.items() if n != "logits"}


KINDS = {
    color.lower() for category, color in CATEGORY_COLORS.items() if category is not Category.OTHER
}
"""Colours that say what memory is for. What is "other" is grey, as everything that is no kind."""


def test_a_colour_that_says_what_memory_is_for_says_nothing_else() -> None:
    looks = [*OTHER_LOOKS, *RANK_LOOKS, FORWARD_LOOK, BACKWARD_LOOK, PREDICTED_LOOK, MEASURED_LOOK]
    looks += [PUBLISHED_LOOK, TENSORS_LOOK, CACHED_LOOK, OUTSIDE_LOOK]
    colors = [look.color.lower() for look in looks] + [color.lower() for color in LINE_COLORS]
    assert KINDS.intersection(colors) == set()
    parts = ("peak", "forward", "backward", "private pools", "used by the process", "softmax")
    assert KINDS.intersection(look.color.lower() for look in looks_for(parts).values()) == set()


@pytest.mark.parametrize("package", ["vramlab_course", "vramlab_classroom"])
def test_pictures_ask_for_such_a_colour_by_its_meaning(package: str) -> None:
    """CATEGORY_LOOKS, looks_for() and tints_of() have them; no file writes one down."""
    written = {
        f"{path.name}: {color}"
        for path in FOLDERS[package].rglob("*.py")
        for color in re.findall(r"#[0-9A-Fa-f]{6}\b", path.read_text(encoding="utf-8"))
        if color.lower() in KINDS
    }
    assert written == set()
