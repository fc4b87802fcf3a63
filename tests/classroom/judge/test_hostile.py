"""A class with hostile submissions: no unearned point, and everybody else graded."""

from __future__ import annotations

from pathlib import Path

import pytest
from classroom import Classroom
from hostile import ALL, ATTACKS, BROKEN

from vramlab_classroom.judge.exercises import find_exercise

pytestmark = pytest.mark.long

EXERCISE = "02_pages_and_blocks"
FULL = {task.name: task.points for task in find_exercise(EXERCISE).tasks}

# nbgrader goes by name: one before all attackers, one after.
HONEST = ("0_before", "zz_after")


@pytest.fixture(scope="module")
def graded(tmp_path_factory) -> Classroom:
    classroom = Classroom(tmp_path_factory.mktemp("class"), EXERCISE, has_sandbox=True)
    for student in HONEST:
        classroom.submit(student, classroom.solution)
    for name, (attack, _) in ATTACKS.items():
        classroom.submit(name, attack(classroom.solution, classroom.released))
    for name, text in BROKEN.items():
        classroom.submit(name, text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vramlab_classroom.judge.job_pool.ANSWER_SECONDS", 2)
        assert not classroom.autograde()  # the broken files are reported
    return classroom


def test_the_attacks_are_about_the_tasks_there_are() -> None:
    assert set(FULL) == ALL


@pytest.mark.parametrize("student", HONEST)
def test_everybody_else_is_graded(graded: Classroom, student: str) -> None:
    assert graded.scores()[student] == FULL


@pytest.mark.parametrize("name", ATTACKS)
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


def test_nobody_climbed_out(graded: Classroom) -> None:
    verdict = graded.verdict("climbs_out_of_the_namespace", "segment_bytes")
    assert "passed" not in verdict
    assert not Path("/tmp/climbed-out").exists()


@pytest.mark.parametrize(
    ("student", "task", "told"),
    [
        ("measures_instead_of_predicting", "block_bytes", "vramlab is not there for an answer"),
        ("equals_everything", "block_bytes", "block_bytes gave 0 (Anything); it should be an int."),
        ("reads_the_seed", "segment_bytes", "Operation not permitted: '/tmp/hidden_seed.txt'"),
        ("forks_on", "segment_bytes", "PermissionError: [Errno 1] Operation not permitted"),
        ("exits_in_the_answer", "segment_bytes", "SystemExit"),
        ("never_ends", "segment_bytes", "did not end within 2 seconds"),
        ("takes_all_memory", "segment_bytes", "MemoryError"),
        ("repair_replaces_the_comparison", "row_norms", "may not change the attributes"),
        ("test_cells_deleted", "block_bytes", "not answered yet"),
    ],
)
def test_the_verdict_tells_what_was_wrong(
    graded: Classroom, student: str, task: str, told: str
) -> None:
    assert told in graded.verdict(student, task)
