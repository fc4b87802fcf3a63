"""Right repairs in many styles pass, as answers do: the language lets them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from repair_programs import our_own_runs_once

from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.task import Config, Fix
from vramlab_course.tasks.building import Building
from vramlab_course.tasks.repair import Repair, Run, _best_known, _key

__all__ = ["our_own_runs_once"]
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("our_own_runs_once")]

BEST_KNOWN = _best_known()
A_LITTLE = 4096
"""Bytes: a few numbers more or less on the GPU are no other way to do it."""

FILES = sorted(Path(__file__).parents[1].glob("*/honest_repairs/**/*.py"))


def exercise_of(path: Path) -> str:
    """The exercise in whose room the file lies; workshops have a folder each in one room."""
    room = path.parent.parent.name
    return path.parent.name if room == "honest_repairs" else room.removeprefix("l")


def task_of(path: Path) -> Fix:
    """The `Fix` task whose name the file binds."""
    source = path.read_text()
    tasks = find_exercise(exercise_of(path)).tasks
    found = [
        task
        for task in tasks
        if isinstance(task, Fix) and any(f"\n{begin}" in source for begin in _bindings(task.name))
    ]
    (task,) = found
    return task


def _bindings(name: str) -> tuple[str, ...]:
    """How a line begins that binds a name."""
    return f"def {name}(", f"class {name}:", f"{name} ="


@pytest.fixture
def peaks_bytes(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The peaks of answers that pass, by the case."""
    peaks: dict[str, int] = {}
    tried = Repair._tried

    def try_and_note(repair: Repair, answer: Any, case: Config) -> Run:
        run = tried(repair, answer, case)
        if run.peaks_bytes:
            peaks[_key(case)] = run.peak_bytes
        return run

    monkeypatch.setattr(Repair, "_tried", try_and_note)
    return peaks


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{exercise_of(path)[:2]}-{path.stem}")
def test_it_passes(path: Path, peaks_bytes: dict[str, int]) -> None:
    """And its peak is the best known, or no lower than that."""
    task = task_of(path)
    replies = [jobs._trial(task, path.read_text(), case) for case in task.visible]
    assert [reply for reply in replies if "achieved" not in reply] == []
    if isinstance(task.trial, Building) or not isinstance(task.trial, Repair):
        return
    known = BEST_KNOWN.get(task.trial.name, {})
    if path.stem == known.get("answer"):
        assert known["peaks_bytes"] == peaks_bytes
    for case, reply in zip(task.visible, replies, strict=True):
        if ", ours " in str(reply["achieved"]):
            ours = [task.trial.peak_of(run) for run in task.trial.our_runs(case)]
            best = task.trial.best_known_bytes(case) or min(ours)
            assert best <= min(ours)
            assert best <= peaks_bytes[_key(case)] + A_LITTLE, "it needs less than is known"


def test_answers_with_the_best_known_peaks_are_there() -> None:
    trials = [(task_of(path).trial, path.stem) for path in FILES]
    names = {(trial.name, stem) for trial, stem in trials if isinstance(trial, Repair)}
    assert names >= {(name, known["answer"]) for name, known in BEST_KNOWN.items()}


def test_there_are_two_of_each_program() -> None:
    """And one of each choice, of which there are few that are right."""
    for name in exercise_names():
        for task in find_exercise(name).tasks:
            if isinstance(task, Fix):
                least = 1 if task.is_value or task.is_plain else 2
                assert sum(task_of(path) is task for path in FILES) >= least, task.name
