"""What comes back for a submission: a verdict on every task, or the reason why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from vramlab_classroom.judge.verdict import Grade, Verdict


@dataclass(frozen=True)
class Marked:
    """A submission that was looked at. All of it can travel as JSON."""

    student: str
    assignment: str
    """Name of the exercise, of its notebook and of its folder."""

    sha256: str
    """Of the submitted notebook's bytes; empty if the file could not even be opened."""

    verdicts: tuple[Verdict, ...] = ()
    """One for every task of the exercise, in its order; none if there is a `problem`."""

    problem: str = ""
    """Why nothing of the submission could be graded, for teacher and student; else empty."""

    notebook: Mapping[str, Any] | None = None
    """The submission, cleaned: nbformat 4, no outputs. None if there is a `problem`."""

    @property
    def ungraded(self) -> tuple[Verdict, ...]:
        """The verdicts that leave a task without a score."""
        return tuple(each for each in self.verdicts if each.grade is Grade.UNGRADED)

    @property
    def needs_human(self) -> bool:
        """Whether any of it has no score."""
        return bool(self.problem or self.ungraded)

    @property
    def points(self) -> float | None:
        """Points earned, before any penalty; None if any task has no score."""
        return None if self.needs_human else sum(each.score or 0 for each in self.verdicts)

    @property
    def max_points(self) -> int:
        """Points that the tasks with a verdict are worth."""
        return sum(each.points for each in self.verdicts)

    def verdict(self, task: str) -> Verdict | None:
        """Return the verdict on a task, if there is one."""
        return next((each for each in self.verdicts if each.task == task), None)

    def as_data(self) -> dict[str, Any]:
        """Return it as what JSON can carry."""
        return {
            "student": self.student,
            "assignment": self.assignment,
            "sha256": self.sha256,
            "verdicts": [verdict.as_data() for verdict in self.verdicts],
            "problem": self.problem,
            "notebook": self.notebook,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Make it from what `as_data` gave."""
        verdicts = tuple(Verdict.from_data(verdict) for verdict in data["verdicts"])
        return cls(**{**data, "verdicts": verdicts})
