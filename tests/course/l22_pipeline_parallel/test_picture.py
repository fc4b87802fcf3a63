"""The picture of a pipeline's step: boxes where the plan has work, and the same in words."""

from __future__ import annotations

import numpy as np
from matplotlib.collections import PolyCollection

from vramlab.programs.pipeline_schedules import plan
from vramlab.units import MIB
from vramlab_course.lessons.l22_pipeline_parallel.picture import draw_gantt


def boxes(picture: object) -> list[tuple[float, float, float]]:
    """Rank, start and slots of each box, kind by kind."""
    found = []
    for kind in picture.axes[0].collections:  # type: ignore[attr-defined]
        assert isinstance(kind, PolyCollection)
        for path in kind.get_paths():
            corners = np.asarray(path.vertices)
            (left, low), (right, high) = corners.min(axis=0), corners.max(axis=0)
            found.append((round((low + high) / 2, 6), left, right - left))
    return found


def test_each_pass_has_a_box_where_the_plan_has_it() -> None:
    whole = plan("1F1B", 2, 2)
    # a row of waiting for each rank, and the cells on top
    expected = [(0, 0, whole.slots), (1, 0, whole.slots)]
    expected += [
        (cell.rank, cell.start, cell.slots)
        for direction in ("forward", "backward")
        for cell in whole.cells
        if cell.work.direction == direction
    ]
    assert boxes(draw_gantt(whole)) == expected


def test_labels_are_micro_batches_with_a_stroke_for_each_further_stage() -> None:
    texts = [
        text.get_text() for text in draw_gantt(plan("interleaved 1F1B", 2, 2, 3)).axes[0].texts
    ]
    assert sorted(texts) == sorted(2 * 2 * ["0", "1", "0'", "1'", "0''", "1''"])


def test_curves_below_follow_what_is_in_flight() -> None:
    """GPipe on two ranks: forward in slots 0 and 1, backward until 5 and 7 on rank 0."""
    picture = draw_gantt(plan("GPipe", 2, 2), micro_batch_bytes=8 * MIB)
    lines = {line.get_label(): line.get_xydata() for line in picture.axes[1].lines}
    assert lines["rank 0"].tolist() == [[0, 8], [1, 16], [7, 8], [9, 0], [9, 0]]
    assert lines["rank 1"].tolist() == [[0, 0], [1, 8], [2, 16], [5, 8], [7, 0], [9, 0]]


def test_pictures_to_compare_have_the_same_time() -> None:
    assert draw_gantt(plan("1F1B", 2, 2), until=20).axes[0].get_xlim() == (0, 20)
