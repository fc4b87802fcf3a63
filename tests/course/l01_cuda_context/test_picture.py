"""The bars of who has a GPU's memory, read from their artists."""

from __future__ import annotations

from matplotlib.patches import Rectangle

from vramlab.measure import DeviceReading
from vramlab.units import MIB
from vramlab_course.lessons.l01_cuda_context.picture import draw_device

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
