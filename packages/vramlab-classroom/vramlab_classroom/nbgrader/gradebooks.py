"""What nbgrader's gradebook holds for a class, and what it does not hold yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nbgrader.api import Gradebook, MissingEntry

from vramlab_classroom.judge.notebooks import READ_BY_HAND, TEST_SUFFIX, is_read_by_hand
from vramlab_classroom.judge.verdict import reason_in

NOT_PROCESSED = "nbgrader could not process the notebook; its log says why"


@dataclass(frozen=True)
class Ungraded:
    """A graded cell of a submission that has no score: not zero, but unknown."""

    student: str
    assignment: str
    cell: str
    reason: str


def ungraded(gradebook: Gradebook, assignment: str) -> list[Ungraded]:
    """List what a human has to look at before the scores of an assignment mean anything.

    nbgrader exports a missing score as 0.0; ask here first.
    """
    return [
        Ungraded(
            student=submission.student.id,
            assignment=assignment,
            cell=grade.name,
            reason=reason_in(comments.get(task) or "", task)
            or (READ_BY_HAND if is_read_by_hand(grade.name) else NOT_PROCESSED),
        )
        for submission in gradebook.assignment_submissions(assignment)
        for notebook in submission.notebooks
        for comments in [{comment.name: comment.auto_comment for comment in notebook.comments}]
        for grade in notebook.grades
        for task in [grade.name.removesuffix(TEST_SUFFIX)]
        if grade.auto_score is None and grade.manual_score is None
    ]


def forget_scores(db_url: str, *, assignment: str, student: str, notebooks: Sequence[str]) -> None:
    """Take away the automatic scores of a submission that is about to be graded.

    If nbgrader then cannot process it, it has no score, instead of that of an earlier version.
    Meant for nbgrader's `pre_convert_hook`, which passes the last three.

    Args:
        db_url: of the gradebook.
        assignment: name of the assignment.
        student: what nbgrader was asked to grade: a pattern, not the student.
        notebooks: paths of the submitted files: `.../<student>/<assignment>/<notebook>.ipynb`.
    """
    with Gradebook(db_url) as gradebook:
        for path in map(Path, notebooks):
            try:
                notebook = gradebook.find_submission_notebook(
                    path.stem, assignment, path.parents[1].name
                )
            except MissingEntry:
                continue  # its first grading
            for grade in notebook.grades:
                grade.auto_score = None
                grade.needs_manual_grade = True
        gradebook.db.commit()
