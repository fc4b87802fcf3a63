"""What could not be graded is no zero: it has no score, and is listed with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from classroom import Classroom

from vramlab_classroom.judge.job_pool import JobDied, JobPool
from vramlab_classroom.nbgrader.gradebooks import Ungraded

EXERCISE = "02_pages_and_blocks"


@pytest.fixture
def classroom(tmp_path: Path) -> Classroom:
    return Classroom(tmp_path, EXERCISE)


def test_a_job_that_died_leaves_its_cell_open_and_the_others_graded(
    classroom: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRAMLAB_HIDDEN_SEED", "a judge that remembers nothing yet")
    monkeypatch.setattr(JobPool, "trial", _die)
    classroom.submit("ada", classroom.solution)
    assert classroom.autograde()
    scores = classroom.scores()["ada"]
    assert scores.pop("row_norms") is None
    assert list(scores.values()) == [2, 3, 4, 3]
    assert classroom.ungraded() == [
        Ungraded(
            student="ada",
            assignment=EXERCISE,
            cell="row_norms-test",
            reason="The answer could not be tried: its process ended with SIGKILL.",
        )
    ]
    with classroom.gradebook() as gradebook:
        submission = gradebook.find_submission(EXERCISE, "ada")
        assert submission.needs_manual_grade


def test_a_teacher_settles_it_by_hand(
    classroom: Classroom, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VRAMLAB_HIDDEN_SEED", "a judge that remembers nothing yet")
    monkeypatch.setattr(JobPool, "trial", _die)
    classroom.submit("ada", classroom.solution)
    classroom.autograde()
    with classroom.gradebook() as gradebook:
        grade = gradebook.find_grade("row_norms-test", EXERCISE, EXERCISE, "ada")
        grade.manual_score = 1.0
        gradebook.db.commit()
    assert classroom.ungraded() == []


def test_a_broken_second_version_does_not_keep_the_scores_of_the_first(
    classroom: Classroom,
) -> None:
    classroom.submit("ada", classroom.solution)
    assert classroom.autograde()
    assert sum(score or 0 for score in classroom.scores()["ada"].values()) == 16
    classroom.submit("ada", '{"truncated')
    assert not classroom.autograde(again=True)
    assert set(classroom.scores()["ada"].values()) == {None}
    assert len(classroom.ungraded()) == 5


def test_grading_again_gives_the_same_scores(classroom: Classroom) -> None:
    classroom.submit("ada", classroom.solution)
    assert classroom.autograde()
    first = classroom.scores()
    assert classroom.autograde(again=True)
    assert classroom.scores() == first


def _die(*arguments: object) -> None:
    raise JobDied("its process ended with SIGKILL")
