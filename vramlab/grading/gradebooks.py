"""What nbgrader's gradebook holds for a class, and what it does not hold yet."""

from __future__ import annotations

from dataclasses import dataclass

from nbgrader.api import Gradebook

from vramlab.grading.notebooks import TEST_SUFFIX


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
            reason=comments.get(grade.name.removesuffix(TEST_SUFFIX))
            or "nbgrader could not process the notebook; its log says why",
        )
        for submission in gradebook.assignment_submissions(assignment)
        for notebook in submission.notebooks
        for comments in [{comment.name: comment.auto_comment for comment in notebook.comments}]
        for grade in notebook.grades
        if grade.auto_score is None and grade.manual_score is None
    ]
