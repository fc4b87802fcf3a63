"""What the picture of the journey shows."""

from __future__ import annotations

from vramlab.measure import Category
from vramlab.units import GIB
from vramlab_course.experiments.journey import JourneySetting, JourneyStop
from vramlab_course.plots import describe_journey, draw_journey

FIRST = JourneyStop(
    "04", "as written", JourneySetting(), {"parameters": GIB, "activations": 3 * GIB}
)
SECOND = JourneyStop(
    "09", "fused", JourneySetting(), {"parameters": GIB, "activations": GIB, "temporaries": GIB}
)


def test_a_bar_for_each_stop_and_how_far_it_has_come() -> None:
    assert describe_journey([FIRST, SECOND]) == (
        "The journey so far: from 4 GiB to 3 GiB. 04: as written: 4 GiB (parameters 1 GiB, "
        "activations 3 GiB). 09: fused: 3 GiB (parameters 1 GiB, activations 1 GiB, temporaries "
        "1 GiB)."
    )
    assert draw_journey([FIRST, SECOND]).alt == describe_journey([FIRST, SECOND])


def test_what_is_not_explained_yet_is_one_part() -> None:
    # 1 of 4 GiB
    assert describe_journey([FIRST], {Category.PARAMETERS}) == (
        "The journey so far: 25% of 4 GiB explained. 04: as written: 4 GiB (parameters 1 GiB, not "
        "explained yet 3 GiB)."
    )
    picture = draw_journey([FIRST], {Category.PARAMETERS})
    labels = [text.get_text() for text in picture.axes[0].texts]
    assert labels == ["parameters 1 GiB", "not explained yet 3 GiB", "4 GiB"]
    assert picture.legends == []  # it would say the same
