"""A class of hostile notebooks, graded by `nbgrader autograde`: no unearned point.

`tests/classroom/run/test_attacks.py` has every attack, by `vramlab grade`. What attacks in nothing
but an answer meets the same judge there; here is what nbgrader itself reads, or would run.
"""

from __future__ import annotations

import pytest
from classroom import Classroom
from hostile import ALL, ATTACKS, BROKEN, IN_ANSWERS

from vramlab_classroom.judge.exercises import find_exercise

pytestmark = pytest.mark.long

EXERCISE = "02_pages_and_blocks"
FULL = {task.name: task.points for task in find_exercise(EXERCISE).tasks}

HOSTILE = [name for name in ATTACKS if name not in IN_ANSWERS]

# nbgrader goes by name: one before all attackers, one after.
HONEST = ("0_before", "zz_after")


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> Classroom:
    classroom = Classroom(tmp_path_factory.mktemp("class"), EXERCISE, has_sandbox=True)
    for student in HONEST:
        classroom.submit(student, classroom.solution)
    for name in HOSTILE:
        attack, _ = ATTACKS[name]
        classroom.submit(name, attack(classroom.solution, classroom.released))
    for name, text in BROKEN.items():
        classroom.submit(name, text)
    assert not classroom.autograde()  # the broken files are reported
    return classroom


@pytest.mark.parametrize("student", HONEST)
def test_everybody_else_is_graded(graded: Classroom, student: str) -> None:
    assert graded.scores()[student] == FULL


@pytest.mark.parametrize("name", HOSTILE)
def test_no_point_is_unearned_and_none_is_lost(graded: Classroom, name: str) -> None:
    _, loses = ATTACKS[name]
    expected = {task: 0 if task in loses else points for task, points in FULL.items()}
    assert graded.scores()[name] == expected


def test_the_points_of_the_assignment_are_as_released(graded: Classroom) -> None:
    with graded.gradebook() as gradebook:
        assert gradebook.find_assignment(EXERCISE).max_score == sum(FULL.values())


@pytest.mark.parametrize("name", BROKEN)
def test_what_cannot_be_read_has_no_score_and_is_listed(graded: Classroom, name: str) -> None:
    assert graded.scores()[name] == dict.fromkeys(FULL)
    assert {entry.cell.removesuffix("-test") for entry in graded.ungraded()} == ALL
    assert name in {entry.student for entry in graded.ungraded()}


def test_only_what_cannot_be_read_is_listed(graded: Classroom) -> None:
    assert {entry.student for entry in graded.ungraded()} == set(BROKEN)
