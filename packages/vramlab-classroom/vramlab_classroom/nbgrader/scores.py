"""Reads a gradebook: one `Score` for each student and assignment. Every export starts from these.

What nbgrader's own sums count as 0.0 because it was not submitted, or could not be graded, is None
here, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any

from nbgrader.api import (
    Assignment,
    Comment,
    Grade,
    Gradebook,
    GradeCell,
    Notebook,
    SolutionCell,
    Student,
    SubmittedAssignment,
    SubmittedNotebook,
)

from vramlab.errors import VramlabError
from vramlab_classroom.judge.exercises import (
    UnknownExerciseError,
    find_exercise,
    is_short_for,
)
from vramlab_classroom.judge.notebooks import READ_BY_HAND, TEST_SUFFIX, is_read_by_hand
from vramlab_classroom.judge.verdict import reason_in

NO_REASON = "it could not be processed, or has not been graded yet"


class UnknownAssignmentError(VramlabError, ValueError):
    """The gradebook has no such assignment; the message lists those that it has."""


class ScoreStatus(Enum):
    """What there is to say about a student's work on an assignment."""

    GRADED = "graded"
    UNGRADED = "could not be graded"
    """Some of it has no score; a human decides."""

    MISSING = "not submitted"


@dataclass(frozen=True)
class TaskScore:
    """What a student got for a task."""

    task: str
    score: float | None
    """A score given by hand goes before the automatic one; None if there is neither."""

    max_score: float
    reason: str = ""
    """Why there is no score."""


@dataclass(frozen=True)
class Score:
    """What a student got for an assignment."""

    student: str
    """nbgrader's id."""

    assignment: str
    tasks: tuple[TaskScore, ...]
    """In the order of the assignment."""

    submitted: datetime | None = None
    """UTC. None if nothing was submitted, or the time is unknown."""

    seconds_late: float = 0
    late_penalty: float = 0
    """Points taken off for being late."""

    is_missing: bool = False
    """Nothing was submitted."""

    first_name: str = ""
    last_name: str = ""
    email: str = ""
    lms_id: str = ""
    """The student's id in a learning management system."""

    @property
    def status(self) -> ScoreStatus:
        if self.is_missing:
            return ScoreStatus.MISSING
        open_tasks = any(task.score is None for task in self.tasks)
        return ScoreStatus.UNGRADED if open_tasks else ScoreStatus.GRADED

    @property
    def score(self) -> float | None:
        """Points after the late penalty; None unless every task has a score."""
        if self.status is not ScoreStatus.GRADED:
            return None
        return max(0.0, sum(task.score or 0 for task in self.tasks) - self.late_penalty)

    @property
    def max_score(self) -> float:
        return sum(task.max_score for task in self.tasks)

    @property
    def reason(self) -> str:
        """Why there is no score: once each, with the tasks it is the reason for."""
        if self.is_missing:
            return ScoreStatus.MISSING.value
        tasks = defaultdict(list)
        for task in self.tasks:
            if task.score is None:
                tasks[task.reason or NO_REASON].append(task.task)
        if len(tasks) == 1 and not any(task.score is not None for task in self.tasks):
            return next(iter(tasks))
        return "; ".join(f"{', '.join(names)}: {reason}" for reason, names in tasks.items())


def find_assignment(gradebook: Gradebook, word: str) -> str:
    """Find an assignment of the gradebook by its name, its number or, of a workshop, its letter.

    Raises:
        UnknownAssignmentError: there is none, or more than one.
    """
    names: list[str] = sorted(name for (name,) in gradebook.db.query(Assignment.name))
    if word in names:
        return word
    found = [name for name in names if is_short_for(word, name)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(names) or "none: nothing has been released or graded yet"
    raise UnknownAssignmentError(f"the gradebook has no assignment {word!r}; it has {known}")


def read_scores(gradebook: Gradebook, assignments: Collection[str] = ()) -> list[Score]:
    """Read what every student has for every assignment.

    Args:
        gradebook: nbgrader's.
        assignments: only these; by default all.

    Returns:
        By assignment, then by student; also for students who submitted nothing.
    """
    students = gradebook.db.query(Student).order_by(Student.id).all()
    return [
        score
        for assignment in gradebook.db.query(Assignment).order_by(Assignment.name)
        if not assignments or assignment.name in assignments
        for score in _assignment_scores(gradebook, assignment, students)
    ]


def _assignment_scores(
    gradebook: Gradebook, assignment: Assignment, students: Sequence[Student]
) -> Iterator[Score]:
    # A few queries for a whole class; nbgrader's own objects would ask again for each grade.
    cells = _cells(gradebook, assignment)
    submissions = _submissions(gradebook, assignment)
    grades = _grades(gradebook, assignment)
    reasons = _reasons(gradebook, assignment)
    penalties = _penalties(gradebook, assignment)
    for student in students:
        submission = submissions.get(student.id)
        submission_id = submission.id if submission else ""
        tasks = []
        for cell in cells:
            task = cell.name.removesuffix(TEST_SUFFIX)
            score = grades.get((submission_id, cell.name))
            waiting = READ_BY_HAND if is_read_by_hand(cell.name) else ""
            reason = reasons.get((submission_id, task)) or waiting if score is None else ""
            tasks.append(TaskScore(task, score, cell.max_score or 0, reason))
        yield Score(
            student=student.id,
            assignment=assignment.name,
            tasks=tuple(tasks),
            submitted=submission.timestamp if submission else None,
            seconds_late=submission.total_seconds_late if submission else 0,
            late_penalty=penalties.get(submission_id, 0),
            is_missing=submission is None,
            first_name=student.first_name or "",
            last_name=student.last_name or "",
            email=student.email or "",
            lms_id=student.lms_user_id or "",
        )


def _cells(gradebook: Gradebook, assignment: Assignment) -> list[GradeCell]:
    """Return the graded cells in the order of the exercise, if it is one of ours."""
    cells: list[GradeCell] = (
        gradebook.db.query(GradeCell)
        .join(Notebook, GradeCell.notebook_id == Notebook.id)
        .filter(Notebook.assignment_id == assignment.id)
        .order_by(GradeCell.name)
        .all()
    )
    try:
        tasks = [f"{task.name}{TEST_SUFFIX}" for task in find_exercise(assignment.name).tasks]
    except UnknownExerciseError:
        return cells
    order = {name: place for place, name in enumerate(tasks)}
    return sorted(cells, key=lambda cell: order.get(cell.name, len(order)))


def _submissions(gradebook: Gradebook, assignment: Assignment) -> dict[str, SubmittedAssignment]:
    """Return what was submitted, by student."""
    query = gradebook.db.query(SubmittedAssignment).filter(
        SubmittedAssignment.assignment_id == assignment.id
    )
    return {submission.student_id: submission for submission in query}


def _grades(gradebook: Gradebook, assignment: Assignment) -> dict[tuple[str, str], float | None]:
    """Return the scores, by submission and cell, as nbgrader counts them; None where is none."""
    columns = (GradeCell.name, Grade.auto_score, Grade.manual_score, Grade.extra_credit)
    query = (
        _of_submissions(gradebook, assignment, *columns)
        .join(Grade, Grade.notebook_id == SubmittedNotebook.id)
        .join(GradeCell, GradeCell.id == Grade.cell_id)
    )
    scores = {}
    for submission, cell, auto, manual, extra in query:
        score = auto if manual is None else manual
        scores[submission, cell] = None if score is None else score + (extra or 0)
    return scores


def _reasons(gradebook: Gradebook, assignment: Assignment) -> dict[tuple[str, str], str]:
    """Return the comments on answers, by submission and task."""
    query = (
        _of_submissions(
            gradebook, assignment, SolutionCell.name, Comment.auto_comment, Comment.manual_comment
        )
        .join(Comment, Comment.notebook_id == SubmittedNotebook.id)
        .join(SolutionCell, SolutionCell.id == Comment.cell_id)
    )
    return {
        (submission, task): manual or reason_in(auto or "", task)
        for submission, task, auto, manual in query
    }


def _penalties(gradebook: Gradebook, assignment: Assignment) -> dict[str, float]:
    """Return the late penalties, by submission."""
    query = _of_submissions(gradebook, assignment, SubmittedNotebook.late_submission_penalty)
    penalties: dict[str, float] = defaultdict(float)
    for submission, penalty in query:
        penalties[submission] += penalty or 0
    return penalties


def _of_submissions(gradebook: Gradebook, assignment: Assignment, *columns: Any) -> Any:
    """Ask for columns of the notebooks that were submitted, after the id of the submission."""
    return (
        gradebook.db.query(SubmittedAssignment.id, *columns)
        .select_from(SubmittedAssignment)
        .filter(SubmittedAssignment.assignment_id == assignment.id)
        .join(SubmittedNotebook, SubmittedNotebook.assignment_id == SubmittedAssignment.id)
    )
