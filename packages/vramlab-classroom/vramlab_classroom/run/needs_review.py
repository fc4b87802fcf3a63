"""What a human has to look at after a run: what went wrong in it, and what has no score."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.notebooks import TEST_SUFFIX
from vramlab_classroom.nbgrader.gradebooks import Ungraded
from vramlab_classroom.run.gradebook_writer import Book
from vramlab_classroom.run.submissions import Submission

LATENESS = "lateness"
FEEDBACK = "feedback"
"""What may be amiss with a submission that has its scores."""


@dataclass(frozen=True)
class Attention:
    """Something that a human has to look at."""

    student: str
    assignment: str
    about: str
    """The task, `LATENESS` or `FEEDBACK`; or empty for the whole submission."""

    reason: str

    @property
    def submission(self) -> tuple[str, str]:
        return self.student, self.assignment


def once_each(told: Sequence[Attention], scoreless: Sequence[Attention]) -> list[Attention]:
    """Put together what went wrong in a run and what has no score, each cause once.

    What did not get into the gradebook has scores of an earlier version there, if any; and who has
    no score needs no feedback page yet.
    """
    refused = {each.submission for each in told if not each.about}
    waiting = {each.submission for each in scoreless}
    return [
        *(each for each in told if each.about != FEEDBACK or each.submission not in waiting),
        *(each for each in scoreless if each.submission not in refused),
    ]


def without_score(book: Book, submissions: Sequence[Submission]) -> Iterator[Attention]:
    """List what of the chosen submissions has no score in the gradebook."""
    chosen = {(each.student, each.assignment) for each in submissions}
    for assignment in sorted({assignment for _, assignment in chosen}):
        by_student: dict[str, list[Ungraded]] = {}
        for each in book.ungraded(assignment):
            if (each.student, assignment) in chosen:
                by_student.setdefault(each.student, []).append(each)
        tasks = len(find_exercise(assignment).tasks)
        for student, cells in by_student.items():
            reasons = {each.cell: each.reason for each in cells}
            if len(cells) >= tasks and len(set(reasons.values())) == 1:
                yield Attention(student, assignment, "", reasons[cells[0].cell])
            else:
                for cell, reason in reasons.items():
                    yield Attention(student, assignment, cell.removesuffix(TEST_SUFFIX), reason)
