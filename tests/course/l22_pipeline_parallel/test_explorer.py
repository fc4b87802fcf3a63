"""The pipelines' explorer: the plan over time, and peaks that are predicted to the byte."""

from __future__ import annotations

import pytest

from vramlab.programs.pipeline_schedules import NAMES, Name
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


def test_every_schedule_can_be_chosen() -> None:
    explorer = pipeline_explorer(ranks=2, micro_batches=2)
    assert explorer.controls["schedule"].options == NAMES
    # 2 ranks * 3 * (2 + 2 - 1) slots, and one micro-batch of three is waited for
    assert "The ranks wait 33.3% of the time" in explorer.output.value
    explorer.controls["schedule"].value = "interleaved 1F1B"
    # two stages on each: 2 * 3 * (2 * 2 + 1) slots of half the length
    assert "The ranks wait 20.0% of the time" in explorer.output.value
    assert "in micro-batches of a whole rank: 2, 1.5." in explorer.output.value


def test_what_torch_refuses_says_so_in_place() -> None:
    explorer = pipeline_explorer(ranks=4, micro_batches=2)
    assert "must be greater than or equal to the number of stages" in explorer.output.value
    assert "Change a setting above to go on" in explorer.output.value
