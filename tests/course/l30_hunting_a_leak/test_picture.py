"""Ways to blocks: what the picture says, and what it leaves out."""

from __future__ import annotations

from vramlab.measure import Holder
from vramlab_course.lessons.l30_hunting_a_leak.picture import draw_holders

SHORT = (Holder("scores", "list"), Holder("[0]", "Tensor"))


def words_in(ways: dict[str, tuple[Holder, ...]]) -> list[str]:
    (axes,) = draw_holders(ways, title="Held").axes
    return [text.get_text() for text in axes.texts]


def test_a_box_for_each_holder_and_a_row_for_each_way() -> None:
    assert words_in({"a score": SHORT}) == ["a score", "scores\nlist", "[0]\nTensor"]
    assert words_in({"one": SHORT, "another": ()})[-2:] == [
        "another",
        "no name of the program leads there",
    ]
