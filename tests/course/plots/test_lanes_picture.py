"""What works when: lanes are as long as their times, and say where the times come from."""

from __future__ import annotations

import pytest
from matplotlib.collections import PolyCollection

from vramlab_course.plots import Span, draw_lanes
from vramlab_course.plots.style import BACKWARD_LOOK, FORWARD_LOOK

LOOKS = {"forward": FORWARD_LOOK, "backward": BACKWARD_LOOK}
LANES = {
    "computes": [Span("forward", 0.0, 0.002, "1"), Span("backward", 0.002, 0.006, "1")],
    "sends": [Span("forward", 0.001, 0.002)],
}


def test_work_is_as_long_as_its_time() -> None:
    picture = draw_lanes(LANES, LOOKS, title="Two milliseconds and four", assumes="Modelled.")
    starts_and_ends = [
        (collection.get_paths()[0].vertices[:, 0].min(), path.vertices[:, 0].max())
        for collection in picture.axes[0].collections
        if isinstance(collection, PolyCollection)
        for path in collection.get_paths()
    ]
    assert starts_and_ends == [
        (pytest.approx(0), pytest.approx(2)),
        (pytest.approx(2), pytest.approx(6)),
        (pytest.approx(1), pytest.approx(2)),
    ]
    assert picture.axes[0].get_xlabel() == "ms. Modelled."
    assert picture.alt == (
        "Two milliseconds and four. Modelled. computes: forward 1 from 0 s to 2 ms, backward 1 "
        "from 2 ms to 6 ms. sends: forward from 1 ms to 2 ms."
    )
