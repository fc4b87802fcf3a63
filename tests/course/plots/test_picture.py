"""How a picture reaches a notebook, and which unit an axis has."""

from __future__ import annotations

import base64
import re

import matplotlib as mpl
import pytest

from vramlab.units import GIB, KIB, MIB
from vramlab_course.plots.picture import new_picture
from vramlab_course.plots.style import MemoryUnit, house_style


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
