"""What a bar of named parts shows, read from its artists and its words."""

from __future__ import annotations

from matplotlib.patches import Rectangle

from vramlab.units import GIB, MIB
from vramlab_course.plots import draw_stack


def test_parts_lie_end_to_end_in_their_order() -> None:
    picture = draw_stack({"weights": 6 * GIB, "cache": 2 * GIB, "nothing": 0}, title="A model")
    parts = [
        (container.get_label(), patch.get_x(), patch.get_width())
        for container in picture.axes[0].containers
        for patch in container
        if isinstance(patch, Rectangle)
    ]
    assert parts == [("weights", 0, 6), ("cache", 6, 2)]
    assert picture.axes[0].get_xlabel() == "GiB (8 GiB in all)"


def test_no_two_of_eight_parts_look_the_same() -> None:
    picture = draw_stack({f"part {number}": MIB for number in range(8)}, title="Eight")
    looks = {
        (patch.get_facecolor(), patch.get_hatch())
        for container in picture.axes[0].containers
        for patch in container
        if isinstance(patch, Rectangle)
    }
    assert len(looks) == 8
