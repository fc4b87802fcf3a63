"""The bars of who has a GPU's memory, read from their artists."""

from __future__ import annotations

import numpy as np
from matplotlib.patches import Rectangle

from vramlab.measure import DeviceReading
from vramlab.units import MIB
from vramlab_course.lessons.l01_cuda_context.picture import describe_device, draw_device

BEFORE = DeviceReading(400 * MIB, 0, 0, 0, 8000 * MIB)
AFTER = DeviceReading(400 * MIB, 250 * MIB, 100 * MIB, 300 * MIB, 7350 * MIB)
MOMENTS = {"before": BEFORE, "after": AFTER}


def test_parts_lie_end_to_end_and_empty_ones_are_left_out() -> None:
    picture = draw_device(MOMENTS)
    bars = [patch for patch in picture.axes[0].patches if isinstance(patch, Rectangle)]
    assert [(bar.get_y() + 0.35, bar.get_x(), bar.get_width()) for bar in bars] == [
        (0, 0, 400),
        (1, 0, 400),  # driver
        (1, 400, 250),  # context
        (1, 650, 300),  # tensors
        (1, 950, 100),  # cached
    ]
    assert [label.get_text() for label in picture.axes[0].get_yticklabels()] == ["before", "after"]
    assert picture.axes[0].get_xlabel() == "MiB"


def test_parts_are_named_once_where_there_is_room_and_else_in_the_legend() -> None:
    picture = draw_device(MOMENTS)
    assert [text.get_text() for text in picture.axes[0].texts] == [
        "driver 400 MiB",  # before
        "400 MiB",  # after: it has its name above
        "context, other processes\n250 MiB",
        "tensors 300 MiB",
        "cached\n100 MiB",
    ]
    assert picture.legends == []
    narrow = DeviceReading(4000 * MIB, 10 * MIB, 0, 300 * MIB, 0)
    (legend,) = draw_device({"now": narrow}).legends
    assert [text.get_text() for text in legend.get_texts()] == [
        "context, other processes",
        "tensors",
    ]


def test_capacity_is_a_line_in_the_legend() -> None:
    picture = draw_device({"after": AFTER}, capacity_bytes=1024 * MIB)
    (line,) = picture.axes[0].get_lines()
    assert np.asarray(line.get_xdata()).tolist() == [1024.0, 1024.0]
    assert picture.legends[0].get_texts()[-1].get_text() == "memory of the GPU: 1 GiB"


def test_words_hold_all_parts() -> None:
    assert describe_device(MOMENTS, title="Readings") == (
        "Readings. before: driver 400 MiB. after: driver 400 MiB, context, other processes "
        "250 MiB, tensors 300 MiB, cached 100 MiB."
    )
    assert draw_device(MOMENTS).alt == describe_device(MOMENTS)
