"""The steps inside `nbgrader autograde`, taken alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest
from classroom import ROOT
from nbgrader.utils import determine_grade

from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.nbgrader import nbgrader_steps
from vramlab_classroom.nbgrader.nbgrader_steps import JudgeTasks, verdict_outputs

EXERCISE = "02_pages_and_blocks"


class PassesAll:
    def judge_all(
        self, exercise: object, cells: Mapping[str, object], rights: object
    ) -> dict[str, Verdict]:
        return {task: Verdict(task, 1, Grade.PASSED, "") for task in cells}


def test_a_warning_about_the_sandbox_is_logged_once_for_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked: list[tuple[str, ...]] = []

    def judge(seed: str, command: tuple[str, ...]) -> PassesAll:
        asked.append(command)
        return PassesAll()

    monkeypatch.setattr(nbgrader_steps, "shared_judge", judge)
    notebook = nbformat.read(ROOT / "exercises" / EXERCISE / f"{EXERCISE}.ipynb", as_version=4)
    log = logging.getLogger("a run of nbgrader")
    for student in ("ada", "bob"):
        step = JudgeTasks(
            seed_file=f"{tmp_path / 'seed'}",
            pool_command=lambda: (["a", "python"], "There are no walls."),
            log=log,
        )
        step.preprocess(notebook, {"nbgrader": {"notebook": EXERCISE, "student": student}})
    assert caplog.messages == ["There are no walls."]
    assert set(asked) == {("a", "python")}


@pytest.mark.parametrize(
    ("verdict", "score"),
    [
        (Verdict("f", 2, Grade.PASSED, ""), 2),
        (Verdict("f", 2, Grade.PARTLY, "", earned=1.5), 1.5),
        (Verdict("f", 2, Grade.PASSED, "", earned=1.8), 1.8),
        (Verdict("f", 2, Grade.FAILED, "You forgot to round."), 0),
        (Verdict("f", 2, Grade.UNANSWERED, ""), 0),
    ],
)
@pytest.mark.parametrize("released_points", [2, 4])
def test_nbgrader_takes_the_points_from_the_outputs(
    verdict: Verdict, score: float, released_points: int
) -> None:
    """By the share of the points that the cell was released with."""
    metadata = {"grade": True, "solution": False, "locked": True, "grade_id": "f-test"}
    cell = nbformat.v4.new_code_cell(outputs=verdict_outputs(verdict, released_points))
    cell.metadata["nbgrader"] = {**metadata, "points": released_points}
    assert determine_grade(cell) == (score * released_points / 2, released_points)
