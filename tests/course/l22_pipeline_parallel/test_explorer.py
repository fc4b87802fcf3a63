"""The pipelines' explorer: the plan over time, and peaks that are predicted to the byte."""

from __future__ import annotations

import pytest

from vramlab.programs.pipeline_schedules import Name
from vramlab_course.lessons.l22_pipeline_parallel.explorer import KEPT, pipeline_explorer


@pytest.mark.parametrize("kept", KEPT)
@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
def test_predicted_is_measured(schedule: Name, kept: str) -> None:
    view = pipeline_explorer.view(schedule, 3, 4, kept)
    (table,) = view.tables
    assert [row[0] for row in table.rows] == ["rank 0", "rank 1", "rank 2"]
    assert [row[1] for row in table.rows] == (
        ["4", "4", "4"] if schedule == "GPipe" else ["3", "2", "1"]
    )
    assert [row[4] for row in table.rows] == [row[5] for row in table.rows]
