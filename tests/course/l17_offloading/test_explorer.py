"""The offloading explorer: measured bytes, least times, and what follows."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l17_offloading.explorer import offloading_explorer
from vramlab_course.widgets.explorer import Explorer

SMALL = {"width": 256, "layers": 1, "batch": 1, "length": 64}
PARAMETERS = 12 * 256**2 + 13 * 256  # 789,760


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return offloading_explorer(**SMALL, offloaded=())


def test_nothing_is_copied_until_something_is_chosen(explorer: Explorer) -> None:
    assert "Nothing is copied." in explorer.output.value
    assert f"{PARAMETERS:,} parameters, 64 tokens in a step" in explorer.output.value
    explorer.controls["optimizer"].value = True
    # 2 B x 789,760 over 15.75 GB/s are 100 us; 6 x 789,760 x 64 FLOPs at 65 TFLOP/s are 5 us
    assert "It waits for the copies to the host: 100 µs at least" in explorer.output.value
    assert f"{2 * PARAMETERS:,} B" in explorer.output.value


def test_enough_tokens_hide_the_trip() -> None:
    # 1376 tokens are needed on a T4, less a little for the attention's own products
    few = offloading_explorer.view(**SMALL | {"batch": 16})
    many = offloading_explorer.view(**SMALL | {"batch": 32})
    assert "It waits for the copies" in few.summary
    assert "can be hidden" in many.summary
