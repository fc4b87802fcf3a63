"""Every exercise grades as it should.

No points for an empty notebook, all for the solution, and each known mistake loses its own points.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

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

from vramlab_classroom.judge import hidden_cases, judge
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
from vramlab_classroom.judge.follow_through import right_answers
from vramlab_classroom.judge.mistakes import Mistake, Try
from vramlab_classroom.judge.notebooks import grade_id, tasks_with_cells
from vramlab_classroom.judge.task import Config, Diagnose, Fix, Predict, Workshop
from vramlab_classroom.judge.verdict import Verdict
from vramlab_classroom.nbgrader.release import stale
from vramlab_classroom.sandbox.bubblewrap import LimitsOnly
from vramlab_course.tasks.building import Building
from vramlab_course.tasks.repair import Repair

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
    shared = judge.shared_judge(SEED, tuple(LimitsOnly().prefix()))
    full = {task.name: task.points for task in exercise.tasks}

    def verdicts(notebook: Notebook) -> dict[str, Verdict]:
        cells = {task: above for task, _, above in tasks_with_cells(notebook)}
        return shared.judge_all(exercise, cells, rights)

    def scores(found: Mapping[str, Verdict]) -> dict[str, float | None]:
        return {task: verdict.score for task, verdict in found.items()}

    assert scores(verdicts(blank)) == dict.fromkeys(full, 0)
    assert scores(verdicts(solution)) == full
    for task in exercise.tasks:
        if isinstance(task, Predict | Diagnose):
            # What the judge has measured for the solution.
            _try_mistakes(task, [shared._truth(exercise, task, case) for case in task.visible])
    for wrong in WRONG[name]:
        found = verdicts(with_cells(solution, {wrong.task: wrong.source}))
        assert scores(found) == _left_by(wrong, full)
        assert wrong.says in f"{found[wrong.task]}", wrong.name


def _try_mistakes(task: Predict | Diagnose, measured: Sequence[Mapping[str, Any]]) -> None:
    """Mistakes answer as asked, and none passes the visible cases.

    And each is named, by its own words or by those of one that answers the same.
    """
    for case in measured:
        answers = [mistake.answer(**case["arguments"]) for mistake in task.mistakes]
        assert {type(case["truth"])}.issuperset(map(type, answers)), task.name
    assert hidden_cases.passing(task.mistakes, measured) == [], task.name
    for mistake in task.mistakes:
        told = judge._explain(task, _tried(mistake, measured), ())
        assert told in {each.message for each in task.mistakes}, task.name
    if (answer := hidden_cases.reference(task)) is not None:
        assert all(answer(**each["arguments"]) == each["truth"] for each in measured)


def _tried(mistake: Mistake, measured: Sequence[Mapping[str, Any]]) -> list[Try]:
    """Give the answers that a mistake leads to, one for each case."""
    answers = [mistake.answer(**each["arguments"]) for each in measured]
    return [
        Try(each["arguments"], {"type": type(answer).__name__, "value": answer}, each["truth"])
        for each, answer in zip(measured, answers, strict=True)
    ]


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
    """And each prediction and diagnosis has mistakes, which are all tried above."""
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


SEEDS = 200


@pytest.mark.long
@pytest.mark.parametrize("name", exercise_names())
def test_no_mistake_passes_hidden_cases(name: str) -> None:
    """By the reference answer, where there is one for what the case says."""
    for task in find_exercise(name).tasks:
        if (answer := hidden_cases.reference(task)) is not None:

            def measure(case: Config, answer: Any = answer) -> dict[str, Any]:
                return {"arguments": case, "truth": answer(**case)}

            for seed in range(SEEDS):
                cases = hidden_cases.draw(task, Random(seed), measure)
                found = hidden_cases.passing(task.mistakes, [measure(case) for case in cases])
                assert found == [], (task.name, seed)


@pytest.mark.long
@pytest.mark.parametrize("name", exercise_names())
def test_a_mistake_costs_everybody_the_same(name: str) -> None:
    """Whatever the seed, and so also where each student has hidden cases of their own."""
    for task in find_exercise(name).tasks:
        if hidden_cases.reference(task) is not None:
            seeds = [hidden_cases.fair_seed(task, f"{seed}") for seed in range(SEEDS // 10)]
            earned = {tuple(hidden_cases.earned(task, seed)) for seed in seeds}
            assert len(earned) == 1, task.name


READ_ALL = """
import sys
from vramlab_classroom.judge.exercises import exercise_names, find_exercise
tasks = [task for name in exercise_names() for task in find_exercise(name).tasks]
assert len(tasks) > 90
print(*{"torch", "transformers", "vramlab.gpu", "vramlab_course.experiments"} & set(sys.modules))
"""


@pytest.mark.long
def test_exercises_are_read_without_torch() -> None:
    done = subprocess.run([sys.executable, "-c", READ_ALL], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("\n", "")


@pytest.mark.parametrize("name", exercise_names())
def test_every_repair_is_tried_by_the_harness(name: str) -> None:
    for task in find_exercise(name).tasks:
        assert not isinstance(task, Fix) or isinstance(task.trial, Repair), task.name
        assert isinstance(task, Workshop) == isinstance(getattr(task, "trial", None), Building)
