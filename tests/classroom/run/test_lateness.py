"""A late submission loses points when it is entered, and a score given by hand outlives that."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import inline_workers
import pytest
from course_folder import EXERCISE, make_course, notebook, submit
from nbgrader.api import Gradebook

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.verdict import Grade, Verdict
from vramlab_classroom.nbgrader.course import Course, find_course
from vramlab_classroom.nbgrader.scores import Score, ScoreStatus, read_scores
from vramlab_classroom.run.gradebook_writer import Book
from vramlab_classroom.run.graded_submission import Marked
from vramlab_classroom.run.run import Options, grade

DUE = datetime(2026, 3, 1, 12)
ON_TIME, NEXT_DAY = "2026-03-01 11:59:59 UTC", "2026-03-02 13:00:00 UTC"


def _marked(student: str, **grades: Grade) -> Marked:
    """Make a submission of which everything is right, except what is named."""
    verdicts = tuple(
        Verdict(task.name, task.points, grades.get(task.name, Grade.PASSED), "because")
        for task in find_exercise(EXERCISE).tasks
    )
    return Marked(student, EXERCISE, "abc", verdicts, notebook=notebook())


def _scores(course: Course) -> dict[str, Score]:
    with Gradebook(course.db_url) as gradebook:
        return {score.student: score for score in read_scores(gradebook)}


@pytest.fixture
def _inline(monkeypatch: pytest.MonkeyPatch) -> None:
    inline_workers.install(monkeypatch)


def _run(course: Course, student: str = "late") -> tuple[int, float | None]:
    """Grade; give how many submissions were marked for it, and the student's score."""
    marked = len(inline_workers.MARKED)
    grade(course, Options(sandbox="limits"))
    return len(inline_workers.MARKED) - marked, _scores(course)[student].score


@pytest.mark.usefixtures("_inline")
def test_another_deadline_is_heeded_without_marking_anything_again(tmp_path: Path) -> None:
    course = find_course(make_course(tmp_path))
    course.config.LatePenalty.percent_per_day = 10
    submit(tmp_path, "late", notebook())  # on the 1st of January at 10
    assert _run(course) == (1, 16)
    with Gradebook(course.db_url, "vramlab") as gradebook:
        gradebook.find_assignment(EXERCISE).duedate = datetime(2025, 12, 31)
        gradebook.db.commit()
    assert _run(course) == (0, 16 - 3.2)  # two days begun
    with Gradebook(course.db_url, "vramlab") as gradebook:
        gradebook.update_or_create_submission(EXERCISE, "late").extension = timedelta(days=1)
        gradebook.db.commit()
    assert _run(course) == (0, 16 - 1.6)
    course.config.LatePenalty.percent_per_day = 50
    assert _run(course) == (0, 16 - 8)
    outcome = grade(course, Options(sandbox="limits"))
    assert (outcome.graded, outcome.kept) == (0, 1)


def test_late_submissions_lose_points(tmp_path: Path) -> None:
    course = find_course(make_course(tmp_path))
    course.config.LatePenalty.percent_per_day = 10
    with Book(course) as book:
        book.released(EXERCISE)
        with Gradebook(course.db_url, "vramlab") as gradebook:
            gradebook.find_assignment(EXERCISE).duedate = DUE
            gradebook.db.commit()
        book.enter(_marked("ada"), ON_TIME)
        book.enter(_marked("bob"), NEXT_DAY)
        book.enter(_marked("cem", block_bytes=Grade.FAILED), NEXT_DAY)
        late_and_open = _marked("dee", block_bytes=Grade.UNGRADED)
        book.enter(late_and_open, NEXT_DAY)
        scores = _scores(course)
        # 25 hours are two days begun: 20 % of 16 points, and of 14.
        assert {student: score.score for student, score in scores.items()} == {
            "ada": 16,
            "bob": 16 - 3.2,
            "cem": 14 - 2.8,
            "dee": None,
        }
        assert scores["bob"].seconds_late == 25 * 3600
        assert scores["dee"].status is ScoreStatus.UNGRADED
        assert scores["dee"].reason == "block_bytes: because"

        # By hand: one point for dee. Entered again, it counts for the penalty, too.
        with Gradebook(course.db_url) as gradebook:
            grade = gradebook.find_grade("block_bytes-test", EXERCISE, EXERCISE, "dee")
            grade.manual_score = 1
            gradebook.db.commit()
        assert _scores(course)["dee"].score == 15 - 2.8
        book.enter(replace(late_and_open, sha256="def"), NEXT_DAY)
        assert _scores(course)["dee"].score == 15 - 3
