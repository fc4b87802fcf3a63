"""What the pictures of schedules and of strategies show, read from their artists."""

from __future__ import annotations

import numpy as np
from matplotlib.collections import PolyCollection

from vramlab.units import MIB
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import (
    segments,
    simulate,
    store_all,
)
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing_experiment import Exchange
from vramlab_course.lessons.l14_gradient_checkpointing.picture import (
    draw_exchange,
    draw_schedule,
)


def bars(picture: object, axes: int) -> list[tuple[float, float, float]]:
    """Where a bar begins, how long it is, and the row's upper edge; sorted."""
    found = []
    for collection in picture.axes[axes].collections:  # type: ignore[attr-defined]
        assert isinstance(collection, PolyCollection)
        for path in collection.get_paths():
            (x0, y0), (x1, _) = path.get_extents().get_points()
            found.append((round(float(x0), 3), round(float(x1 - x0), 3), round(float(y0), 3)))
    return sorted(found)


def test_every_state_and_gradient_has_its_bar() -> None:
    picture = draw_schedule(simulate(store_all(2)))
    # moments 0 to 4; record 0, record 1, backward 1, backward 0
    assert bars(picture, 0) == sorted(
        [
            (0, 1, -0.5),  # f0 is current,
            (1, 3, -0.5),  # then recorded, until it has been gone back through
            (1, 1, 0.5),  # f1 is current, then recorded
            (2, 1, 0.5),
            (2, 1, 1.5),  # f2 is current until the loss
            (3, 1, 1.05),  # b1, in the lower part of its row
            (4, 1, 0.05),  # b0
        ]
    )
    assert [text.get_text() for text in picture.legends[0].get_texts()] == [
        "stored",
        "recorded for going back",
        "current",
        "gradient",
    ]


def test_the_chain_stands_above_at_a_moment() -> None:
    picture = draw_schedule(simulate(segments(4, 2)), at=5)
    texts = [text.get_text() for text in picture.axes[0].texts]
    assert {f"f{i}" for i in range(5)} | {f"b{i}" for i in range(5)} <= set(texts)
    assert any("steps forward so far: 4" in text for text in texts)
    solid = [patch for patch in picture.axes[0].patches if patch.get_linewidth() > 1]
    assert len(solid) == 4  # f0 is stored, f2 and f3 recorded, f4 current


POINTS = (
    Exchange("store all", False, 64 * MIB, 64 * MIB, 100, 100),
    Exchange("each", True, 16 * MIB, 15 * MIB, 120, 130),
)


def test_each_strategy_has_a_dot_and_a_ring() -> None:
    picture = draw_exchange(POINTS, title="Trade")
    places = [tuple(np.asarray(line.get_xydata())[0]) for line in picture.axes[0].lines]
    assert places == [(1.0, 64.0), (1.0, 64.0), (1.2, 16.0), (1.3, 15.0)]
    words = [text.get_text() for text in picture.axes[0].texts]
    assert words == ["1", "1  store all", "2", "2  each"]
    explained = [text.get_text() for text in picture.legends[0].get_texts()]
    assert explained == ["schedule, executed", "by torch", "predicted"]
    assert picture.axes[0].get_ylabel() == "peak beyond parameters and input (MiB)"
