"""Answers of learners of all kinds get the points that a person would give for them."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.job_pool import JobPool
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.notebooks import grade_id

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
TABLE = tomllib.loads(Path(__file__).with_name("fair_scores.toml").read_text())
ANSWERS = [
    pytest.param(exercise, task, points, texts, id=f"{exercise[:2]}-{task}-{kind}")
    for exercise, tasks in TABLE.items()
    for task, answers in tasks.items()
    for points, kind, *texts in answers
]


@pytest.fixture(scope="module")
def pool() -> Iterator[JobPool]:
    with JobPool() as pool:
        yield pool


@pytest.fixture(scope="module")
def judge(pool: JobPool) -> Judge:
    return Judge(pool, "a seed")


def cells(exercise: str, task: str, texts: list[str]) -> list[str]:
    """The code cells of a solution in which one answer is another."""
    notebook = json.loads((ROOT / "solutions" / exercise / f"{exercise}.ipynb").read_text())
    return [
        answered("".join(cell["source"]), texts)
        if grade_id(cell) == task
        else "".join(cell["source"])
        for cell in notebook["cells"]
        if cell["cell_type"] == "code"
    ]


def answered(solution: str, texts: list[str]) -> str:
    if len(texts) == 1:
        return texts[0]
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        assert old in solution
        solution = solution.replace(old, new)
    return solution


@pytest.mark.parametrize(("exercise", "task", "points", "texts"), ANSWERS)
def test_an_answer_gets_what_a_person_would_give(
    judge: Judge, exercise: str, task: str, points: float, texts: list[Any]
) -> None:
    verdict = judge.judge(find_exercise(exercise), task, cells(exercise, task, texts))
    assert verdict.score == points, verdict.message


@pytest.mark.parametrize("exercise", TABLE)
def test_the_solution_gets_all(judge: Judge, exercise: str) -> None:
    found = find_exercise(exercise)
    whole = cells(exercise, "", [])
    verdicts = judge.judge_all(found, {task.name: whole for task in found.tasks})
    assert sum(verdict.score or 0 for verdict in verdicts.values()) == found.points
