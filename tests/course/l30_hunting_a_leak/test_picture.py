"""Ways to blocks: what the picture says, and what it leaves out."""

from __future__ import annotations

import pytest

from vramlab.measure import Holder
from vramlab_course.lessons.l30_hunting_a_leak.picture import describe_holders, draw_holders

SHORT = (Holder("scores", "list"), Holder("[0]", "Tensor"))
LONG = tuple(Holder(f"step {number}", "node") for number in range(10))


def words_in(ways: dict[str, tuple[Holder, ...]]) -> list[str]:
    (axes,) = draw_holders(ways, title="Held").axes
    return [text.get_text() for text in axes.texts]


def test_a_box_for_each_holder_and_a_row_for_each_way() -> None:
    assert words_in({"a score": SHORT}) == ["a score", "scores\nlist", "[0]\nTensor"]
    assert words_in({"one": SHORT, "another": ()})[-2:] == [
        "another",
        "no name of the program leads there",
    ]


def test_a_long_way_is_shortened_in_its_middle() -> None:
    # 4 at its beginning, 2 at its end: 4 of 10 are left out
    assert words_in({"far": LONG})[4:7] == ["step 3\nnode", "...\n4 more", "step 8\nnode"]


def test_long_words_are_cut() -> None:
    (word,) = words_in({"": (Holder("x", "AVeryLongNameOfANodeBackward0"),)})[1:]
    assert word.startswith("x\nAVeryLongName")
    assert word.endswith("…")


def test_it_says_in_words_what_it_draws() -> None:
    assert describe_holders({"a score": SHORT, "a cycle": ()}, title="Held") == (
        "Held. a score: scores (list), then [0] (Tensor). a cycle: no name of the program leads "
        "there."
    )
    assert draw_holders({"a score": SHORT}, title="Held").alt.startswith("Held. a score: scores")


@pytest.mark.parametrize("count", [0, 5])
def test_more_ways_than_fit_are_refused(count: int) -> None:
    with pytest.raises(ValueError, match=f"{count} ways in a picture; 1 to 4 can be drawn"):
        draw_holders({str(number): SHORT for number in range(count)}, title="Held")
