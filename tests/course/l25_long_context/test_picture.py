"""The picture of a ring: who has which block when."""

from __future__ import annotations

from vramlab.units import MIB
from vramlab_course.lessons.l25_long_context.picture import draw_ring_turns


def test_it_says_who_has_what() -> None:
    picture = draw_ring_turns([[0, 1], [1, 0]], 64 * MIB, title="Around")
    assert picture.alt == (
        "Around. Keys and values of 64 MiB a block go around 2 ranks; queries stay. "
        "Rank 0 has block 0, then 1. Rank 1 has block 1, then 0."
    )
    words = [text.get_text() for text in picture.axes[0].texts]
    assert words.count("keys, values 1") == 2
    assert "A block is 64 MiB; each rank sends 1 of them on." in words
