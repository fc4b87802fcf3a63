"""The picture of who holds what, read from its artists."""

from __future__ import annotations

from matplotlib.patches import Rectangle

from vramlab_course.lessons.l20_zero.shards_picture import draw_shards

HELD = (
    {"before": ["a0", "b0"], "forward, La": ["a0", "a1", "b0"]},
    {"before": ["a1", "b1"], "forward, La": ["a0", "a1", "b1"]},
)


def test_names_stand_where_they_are_held_filled_at_home_and_hatched_elsewhere() -> None:
    picture = draw_shards(HELD)
    (axes,) = picture.axes
    names = [text.get_text() for text in axes.texts]
    assert names.count("GPU 0") == names.count("GPU 1") == 1
    # a0 at home twice and sent once, as is a1; b0 and b1 at home twice
    assert [names.count(name) for name in ("a0", "a1", "b0", "b1")] == [3, 3, 2, 2]
    cells = [patch for patch in axes.patches if isinstance(patch, Rectangle)]
    assert len(cells) == 2 * 2 * 4  # GPUs, moments, parameters
    there = [cell.get_hatch() for cell in cells if cell.get_facecolor()[:3] != (1, 1, 1)]
    assert (there.count(""), there.count("//")) == (8, 2)  # at home, gathered
    assert [label.get_text() for label in axes.get_yticklabels()] == ["before", "forward, La"]
    assert picture.to_png().startswith(b"\x89PNG")
