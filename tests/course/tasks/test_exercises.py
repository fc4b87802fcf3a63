"""Every exercise grades as it should.

No points for an empty notebook, all for the solution, and each known mistake loses its own points.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from classroom import (
    ROOT,
    SEED,
    Classroom,
    Notebook,
    WrongAnswer,
    read,
    with_cells,
    wrong_answers,
)

from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.follow_through import right_answers
from vramlab_classroom.judge.judge import shared_judge
from vramlab_classroom.judge.notebooks import grade_id, tasks_with_cells
from vramlab_classroom.judge.task import Diagnose, Predict
from vramlab_classroom.judge.verdict import Verdict
from vramlab_classroom.nbgrader.release import stale
from vramlab_classroom.sandbox.bubblewrap import LimitsOnly

WRONG = {
    name: wrong_answers(name, [task.name for task in find_exercise(name).tasks])
    for name in exercise_names()
}


THROUGH_NBGRADER = ("11_sequence_length", "workshop_a_allocator")
"""Exercises whose classes go through nbgrader's gradebook: one has partial credit."""


# The '::' lets pytest-xdist's loadscope give each exercise to whichever worker is free.
@pytest.mark.long
@pytest.mark.parametrize("name", exercise_names(), ids=lambda name: f"{name}::class")
def test_answers_earn_and_are_told_what_they_should(name: str) -> None:
    """Judge the blank notebook, the solution, and every wrong answer, as nbgrader's step does."""
    exercise = find_exercise(name)
    blank, solution = (
        read(ROOT / folder / name / f"{name}.ipynb") for folder in ("exercises", "solutions")
    )
    rights = right_answers(exercise, ROOT / "solutions" / name / f"{name}.ipynb")
    judge = shared_judge(SEED, tuple(LimitsOnly().prefix()))
    full = {task.name: task.points for task in exercise.tasks}

    def verdicts(notebook: Notebook) -> dict[str, Verdict]:
        cells = {task: above for task, _, above in tasks_with_cells(notebook)}
        return judge.judge_all(exercise, cells, rights)

    def scores(found: Mapping[str, Verdict]) -> dict[str, float | None]:
        return {task: verdict.score for task, verdict in found.items()}

    assert scores(verdicts(blank)) == dict.fromkeys(full, 0)
    assert scores(verdicts(solution)) == full
    for wrong in WRONG[name]:
        found = verdicts(with_cells(solution, {wrong.task: wrong.source}))
        assert scores(found) == _left_by(wrong, full)
        assert wrong.says in f"{found[wrong.task]}", wrong.name


@pytest.mark.long
@pytest.mark.parametrize("name", THROUGH_NBGRADER)
def test_a_class_is_graded_as_it_should(name: str, tmp_path: Path) -> None:
    """Grade one class: the blank notebook, the solution, and every wrong answer."""
    classroom = Classroom(tmp_path, name)
    classroom.submit("blank", classroom.released)
    classroom.submit("full", classroom.solution)
    for wrong in WRONG[name]:
        answer = with_cells(classroom.solution, {wrong.task: wrong.source})
        classroom.submit(wrong.name, answer)
    assert classroom.autograde()
    assert classroom.ungraded() == []
    full = {task.name: task.points for task in find_exercise(name).tasks}
    assert classroom.scores() == {
        "blank": dict.fromkeys(full, 0),
        "full": full,
        **{wrong.name: _left_by(wrong, full) for wrong in WRONG[name]},
    }
    for wrong in WRONG[name]:
        assert wrong.says in classroom.verdict(wrong.name, wrong.task), wrong.name


def _left_by(wrong: WrongAnswer, full: Mapping[str, int]) -> dict[str, float]:
    return {**full, **dict.fromkeys(wrong.loses, 0.0), wrong.task: wrong.leaves}


@pytest.mark.parametrize("name", exercise_names())
def test_each_repair_has_a_wrong_answer(name: str) -> None:
    """And each prediction and diagnosis has mistakes: `test_tasks.py` tries them all."""
    wrong: list[WrongAnswer] = WRONG[name]
    for task in find_exercise(name).tasks:
        if isinstance(task, Predict | Diagnose):
            assert task.mistakes
        else:
            assert task.name in {answer.task for answer in wrong}
    assert all(answer.task in answer.loses for answer in wrong)


def test_every_exercise_has_a_master_and_every_master_an_exercise() -> None:
    assert sorted(path.name for path in (ROOT / "solutions").iterdir()) == exercise_names()


def test_exercises_are_what_solutions_give() -> None:
    assert stale(ROOT) == []


@pytest.mark.parametrize("name", exercise_names())
def test_master_has_the_cells_and_points_of_its_tasks(name: str) -> None:
    exercise = find_exercise(name)
    notebook = read(ROOT / "solutions" / name / f"{name}.ipynb")
    marked = {
        grade_id(cell): cell["metadata"]["nbgrader"] for cell in notebook["cells"] if grade_id(cell)
    }
    points = {
        name.removesuffix("-test"): data["points"] for name, data in marked.items() if data["grade"]
    }
    assert points == {task.name: task.points for task in exercise.tasks}
    answers = {name for name, data in marked.items() if data["solution"]}
    assert answers == set(points)
    for task, cell, _ in tasks_with_cells(notebook):
        assert cell["source"] == f'check("{name}", "{task}")'


@pytest.mark.parametrize("name", exercise_names())
def test_master_is_committed_clean_with_readable_cell_ids(name: str) -> None:
    notebook = read(ROOT / "solutions" / name / f"{name}.ipynb")
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        assert len(cell["id"]) <= 64
        assert cell["id"] == (grade_id(cell) or cell["id"])
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
