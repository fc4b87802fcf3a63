"""Every exercise grades as it should: nothing for nothing, all for the solution, and each known
wrong answer loses exactly what it should. Proven cell by cell, through nbgrader's gradebook."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from classroom import ROOT, Classroom, WrongAnswer, with_cells, wrong_answers

from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.notebooks import grade_id, tested_task
from vramlab_classroom.judge.task import Diagnose, Predict
from vramlab_classroom.nbgrader.release import stale

WRONG = {
    name: wrong_answers(name, [task.name for task in find_exercise(name).tasks])
    for name in exercise_names()
}


# The '::' lets pytest-xdist's loadscope give each exercise to whichever worker is free.
@pytest.mark.long
@pytest.mark.parametrize("name", exercise_names(), ids=lambda name: f"{name}::class")
def test_a_class_is_graded_as_it_should(name: str, tmp_path: Path) -> None:
    """Grade one class: the blank notebook, the solution, and every wrong answer."""
    classroom = Classroom(tmp_path, name)
    classroom.submit("blank", classroom.released)
    classroom.submit("full", classroom.solution)
    students = _students(WRONG[name])
    for student, wrong in students.items():
        cells = {each.task: each.source for each in wrong}
        classroom.submit(student, with_cells(classroom.solution, cells))
    assert classroom.autograde()
    assert classroom.ungraded() == []
    full = {task.name: task.points for task in find_exercise(name).tasks}
    assert classroom.scores() == {
        "blank": dict.fromkeys(full, 0),
        "full": full,
        **{student: _left_by(wrong, full) for student, wrong in students.items()},
    }
    told = {
        each: classroom.verdict(student, each.task)
        for student, wrong in students.items()
        for each in wrong
    }
    assert [text for wrong, text in told.items() if wrong.says not in text] == []


def _students(wrong: Sequence[WrongAnswer]) -> dict[str, list[WrongAnswer]]:
    """Give wrong answers to as few students as can be: to one of them, such as cost other tasks."""
    students: list[list[WrongAnswer]] = []
    for each in wrong:
        free = (own for own in students if all(each.loses.isdisjoint(o.loses) for o in own))
        own = next(free, None)
        if own is None:
            students.append([each])
        else:
            own.append(each)
    return {f"wrong-{number}": own for number, own in enumerate(students)}


def _left_by(wrong: Sequence[WrongAnswer], full: Mapping[str, int]) -> dict[str, float]:
    lost = dict.fromkeys(frozenset().union(*(each.loses for each in wrong)), 0.0)
    return {**full, **lost, **{each.task: each.leaves for each in wrong}}


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
def test_master_has_the_cells_and_points_of_its_tasks(name: str, read_master) -> None:
    exercise = find_exercise(name)
    notebook = read_master(name)
    marked = {
        grade_id(cell): cell["metadata"]["nbgrader"] for cell in notebook["cells"] if grade_id(cell)
    }
    points = {
        name.removesuffix("-test"): data["points"] for name, data in marked.items() if data["grade"]
    }
    assert points == {task.name: task.points for task in exercise.tasks}
    answers = {name for name, data in marked.items() if data["solution"]}
    assert answers == set(points)
    for cell in notebook["cells"]:
        if task := tested_task(cell):
            assert cell["source"] == f'check("{name}", "{task}")'


@pytest.mark.parametrize("name", exercise_names())
def test_master_is_committed_clean_with_readable_cell_ids(name: str, read_master) -> None:
    notebook = read_master(name)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    for cell in notebook["cells"]:
        assert len(cell["id"]) <= 64
        assert cell["id"] == (grade_id(cell) or cell["id"])
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None), cell["id"]
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)


@pytest.fixture
def read_master():
    from classroom import read

    def read_one(name: str) -> dict:
        path = Path(ROOT / "solutions" / name / f"{name}.ipynb")
        return read(path)

    return read_one
