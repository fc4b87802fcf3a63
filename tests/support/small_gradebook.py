"""A gradebook made by hand, without grading anything: two tasks, a few students."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from nbgrader.api import Gradebook
from sqlalchemy.exc import SAWarning

EXERCISE = "02_pages_and_blocks"
POINTS = {"block_bytes": 2, "segment_bytes": 3}
DUE = datetime(2026, 3, 1, 12)


def make_gradebook(folder: Path, assignment: str = EXERCISE) -> Gradebook:
    """Make a gradebook with one assignment of two tasks, due on `DUE`."""
    path = folder / "gradebook.db"
    path.write_bytes(_empty_gradebook())
    gradebook = Gradebook(f"sqlite:///{path}")
    add_assignment(gradebook, assignment)
    return gradebook


@cache
def _empty_gradebook() -> bytes:
    """Make an empty gradebook once: nbgrader starts another program for each new one."""
    with TemporaryDirectory() as folder:
        path = Path(folder, "gradebook.db")
        Gradebook(f"sqlite:///{path}").close()
        return path.read_bytes()


def add_assignment(gradebook: Gradebook, assignment: str) -> None:
    gradebook.add_assignment(assignment, duedate=DUE)
    gradebook.add_notebook(assignment, assignment)
    for task, points in POINTS.items():
        gradebook.add_solution_cell(task, assignment, assignment)
        gradebook.add_grade_cell(
            f"{task}-test", assignment, assignment, max_score=points, cell_type="code"
        )


def add_submission(
    gradebook: Gradebook,
    student: str,
    scores: Mapping[str, float | None],
    *,
    assignment: str = EXERCISE,
    hours_late: float = 0,
    penalty: float = 0,
    reasons: Mapping[str, str] | None = None,
    **details: str,
) -> None:
    """Add a submission as it is after grading.

    Args:
        gradebook: where to.
        student: id of the student, who may be new.
        scores: by task; None for what could not be graded.
        assignment: what for.
        hours_late: after `DUE`; negative if early.
        penalty: points taken off.
        reasons: why there is no score, by task.
        details: of the student: first_name, last_name, email, lms_user_id.
    """
    gradebook.update_or_create_student(student, **details)
    with warnings.catch_warnings():
        # nbgrader 0.9.6 makes SQLAlchemy warn about its own session whenever a submission is new.
        warnings.filterwarnings("ignore", "Object of type <Submitted", SAWarning)
        submission = gradebook.update_or_create_submission(
            assignment, student, timestamp=DUE + timedelta(hours=hours_late)
        )
    (notebook,) = submission.notebooks
    notebook.late_submission_penalty = penalty
    for grade in notebook.grades:
        grade.auto_score = scores[grade.name.removesuffix("-test")]
        grade.needs_manual_grade = grade.auto_score is None
    for comment in notebook.comments:
        comment.auto_comment = (reasons or {}).get(comment.name)
    gradebook.db.commit()
