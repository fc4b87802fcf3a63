"""The steps inside `nbgrader autograde`, taken alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import nbformat
import pytest
from classroom import ROOT

from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.nbgrader import nbgrader_steps
from vramlab_classroom.nbgrader.nbgrader_steps import JudgeTasks

EXERCISE = "02_pages_and_blocks"


class PassesAll:
    def judge_all(self, exercise: object, cells: Mapping[str, object]) -> dict[str, Verdict]:
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
