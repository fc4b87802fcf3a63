"""What the stacked bar shows, read from its artists."""

from __future__ import annotations

import numpy as np
from matplotlib.patches import Rectangle

from vramlab.measure import BlockLife, Breakdown, Category, TimelineMoment
from vramlab.units import MIB
from vramlab_course.plots import Picture, draw_breakdown


def life(mib: int) -> BlockLife:
    return BlockLife(0, mib * MIB, mib * MIB, mib * MIB, 0, 0, None, ())


AT = Breakdown(
    TimelineMoment(
        position=7, stage="backward", blocks=(life(60), life(30)), reserved_bytes=100 * MIB
    ),
    {Category.PARAMETERS: 30 * MIB, Category.ACTIVATIONS: 60 * MIB},
)


def parts(picture: Picture) -> list[tuple[str, float, float]]:
    return [
        (str(container.get_label()), patch.get_x(), patch.get_width())
        for container in picture.axes[0].containers
        for patch in container
        if isinstance(patch, Rectangle)
    ]


def test_parts_lie_end_to_end() -> None:
    assert parts(draw_breakdown(AT, outside={"CUDA context": 50 * MIB})) == [
        ("parameters", 0, 30),
        ("activations", 30, 60),
        ("cached, not allocated", 90, 10),
        ("CUDA context", 100, 50),
    ]


def test_capacity_is_a_line() -> None:
    picture = draw_breakdown(AT, capacity_bytes=128 * MIB)
    (line,) = picture.axes[0].get_lines()
    assert np.asarray(line.get_xdata()).tolist() == [128.0, 128.0]
    assert line.get_label() == "memory of the GPU: 128 MiB"
