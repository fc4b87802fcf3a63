"""Every exercise grades as it should: nothing for nothing, all for the solution, and each known
wrong answer loses exactly what it should. Proven cell by cell, through nbgrader's gradebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from classroom import ROOT, Classroom, WrongAnswer, with_cells, wrong_answers

from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.notebooks import grade_id
from vramlab_classroom.judge.task import Exercise
from vramlab_classroom.nbgrader.release import stale

WRONG = {
    name: wrong_answers(name, [task.name for task in find_exercise(name).tasks])
    for name in exercise_names()
}


@pytest.fixture(scope="module", params=exercise_names())
def graded(request: pytest.FixtureRequest, tmp_path_factory) -> Iterator[Classroom]:
    """Grade one class per exercise: the blank notebook, the solution, each wrong answer."""
    classroom = Classroom(tmp_path_factory.mktemp("class"), request.param)
    classroom.submit("blank", classroom.released)
    classroom.submit("full", classroom.solution)
    for wrong in WRONG[request.param]:
        changed = with_cells(classroom.solution, {wrong.task: wrong.source})
        classroom.submit(wrong.name, changed)
    assert classroom.autograde()
    return classroom


def full_marks(exercise: Exercise) -> dict[str, float | None]:
    return {task.name: task.points for task in exercise.tasks}


def test_blank_earns_nothing(graded: Classroom) -> None:
    exercise = find_exercise(graded.exercise)
    assert graded.scores()["blank"] == dict.fromkeys(full_marks(exercise), 0)


def test_solution_earns_everything(graded: Classroom) -> None:
    assert graded.scores()["full"] == full_marks(find_exercise(graded.exercise))


def test_wrong_answers_lose_exactly_what_they_should(graded: Classroom) -> None:
    full = full_marks(find_exercise(graded.exercise))
    scores = graded.scores()
    expected = {
        wrong.name: {task: 0 if task in wrong.loses else points for task, points in full.items()}
        for wrong in WRONG[graded.exercise]
    }
    assert {name: scores[name] for name in expected} == expected


def test_wrong_answers_are_told_their_mistake(graded: Classroom) -> None:
    told = {wrong: graded.verdict(wrong.name, wrong.task) for wrong in WRONG[graded.exercise]}
    assert [text for wrong, text in told.items() if wrong.says not in text] == []


def test_everything_was_graded(graded: Classroom) -> None:
    assert graded.ungraded() == []


@pytest.mark.parametrize("name", exercise_names())
def test_there_are_three_wrong_answers_and_each_task_has_one(name: str) -> None:
    wrong: list[WrongAnswer] = WRONG[name]
    assert len(wrong) >= 3
    assert {answer.task for answer in wrong} == {task.name for task in find_exercise(name).tasks}
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
