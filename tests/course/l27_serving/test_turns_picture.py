"""The picture of a server's batch: a box for each request, and the same in words."""

from __future__ import annotations

from vramlab_course.lessons.l27_serving.batching import continuously, in_batches
from vramlab_course.lessons.l27_serving.turns_picture import draw_turns

ANSWERS = (4, 9, 6, 3)
WAYS = {"batches": in_batches(ANSWERS, 2), "continuously": continuously(ANSWERS, 2)}


def test_every_request_has_its_number_in_both_ways() -> None:
    picture = draw_turns(WAYS, 2)
    # 9 + 6 steps; and 4 + 6 + 3, where 9 end before
    assert picture.get_suptitle() == "The same answers: batches 15 steps, continuously 12 steps"
    for axes, way in zip(
        picture.axes, ("batches: 15 steps", "continuously: 12 steps"), strict=True
    ):
        assert axes.get_title(loc="left") == way
        assert [text.get_text() for text in axes.texts] == ["1", "2", "3", "4"]
