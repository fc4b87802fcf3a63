"""How a picture reaches a notebook, and which unit an axis has."""

from __future__ import annotations

import base64
import re

import matplotlib as mpl
import pytest

from vramlab.measure import Category
from vramlab.units import GIB, KIB, MIB
from vramlab_course.plots.picture import new_picture
from vramlab_course.plots.style import CATEGORY_LOOKS, MemoryUnit, house_style, looks_for


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
