"""The picture of a server's batch: a box for each request, and the same in words."""

from __future__ import annotations

import pytest

from vramlab_course.lessons.l27_serving.batching import continuously, in_batches
from vramlab_course.lessons.l27_serving.turns_picture import describe_turns, draw_turns

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


def test_what_it_says() -> None:
    assert draw_turns(WAYS, 2).alt == describe_turns(WAYS, 2)
    # 22 tokens in 2 x 15 and in 2 x 12 places
    assert describe_turns(WAYS, 2, title="Two ways") == (
        "Two ways. 4 requests, 2 places. batches: 15 steps, in which 73% of the places write; "
        "continuously: 12 steps, in which 92% of the places write."
    )
    with pytest.raises(ValueError, match="there is no way of serving to draw"):
        draw_turns({}, 2)
