"""The verdict on one task, and how it reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Self
from unicodedata import east_asian_width

from vramlab.errors import VramlabError
from vramlab.words import say, say_name

MAX_CASE_CHARACTERS = 80


class Grade(Enum):
    """What became of a task."""

    PASSED = "passed"
    PARTLY = "partly right"
    """It has earned some of the points: see `partial_credit.py`."""

    FAILED = "failed"
    UNANSWERED = "not answered yet"
    UNGRADED = "could not be graded"
    """Could not be graded. Never counted as zero: a human decides."""


@dataclass(frozen=True)
class Spent:
    """What the program of a workshop has taken: its score, the less the better."""

    size_bytes: int
    steps: int

    def __str__(self) -> str:
        return say(
            "{size} bytes, {steps} steps", size=f"{self.size_bytes:,}", steps=f"{self.steps:,}"
        )


def in_short(arguments: Mapping[str, Any]) -> str:
    """Write arguments as in a call, cut where they are long."""
    text = ", ".join(f"{name}={value!r}" for name, value in arguments.items())
    if len(text) > MAX_CASE_CHARACTERS:
        text = f"{text[: MAX_CASE_CHARACTERS - 3]}..."
    return text


@dataclass(frozen=True)
class CaseResult:
    """How an answer did on one case."""

    config: Mapping[str, Any]
    right: bool
    answered: str
    """The learner's answer as text, or what kept it from being one."""

    truth: str
    """What was measured, or what a repair achieved."""

    visible: bool

    spent: Spent | None = None
    """In a workshop, if it is right."""

    evidence: str = ""
    """In a diagnosis, what the answer was called with, in short: its config names the cause."""

    @property
    def name(self) -> str:
        """The case in short: `size=4, unit='page'`."""
        return self.evidence or in_short(self.config)

    def as_data(self) -> dict[str, Any]:
        """Return it as what JSON can carry."""
        return {**asdict(self), "config": dict(self.config)}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Make it from what `as_data` gave."""
        spent = data.get("spent")
        return cls(**{**data, "spent": Spent(**spent) if spent else None})


@dataclass(frozen=True)
class Verdict:
    """What became of one task, with everything that a learner needs to go on."""

    task: str
    points: int
    """Points that the task is worth."""

    grade: Grade
    message: str
    """Names the likely mistake, or the reason of a missing grade; empty for a right answer."""

    cases: tuple[CaseResult, ...] = ()

    earned: float | None = None
    """Points earned, where it is neither all for a right answer nor none for a wrong one."""

    note: str = ""
    """How it was judged, if in a way of its own; see `follow_through.py` and `run/attempts.py`."""

    @property
    def score(self) -> float | None:
        """Points earned; None when the task could not be graded."""
        if self.grade is Grade.UNGRADED:
            return None
        if self.earned is not None:
            return self.earned
        return self.points if self.grade is Grade.PASSED else 0

    @property
    def spent(self) -> Spent | None:
        """The score of a workshop, if it is solved: over the visible cases, which all have."""
        each = [case.spent for case in self.cases if case.visible and case.spent]
        if self.grade is not Grade.PASSED or not each:
            return None
        return Spent(sum(one.size_bytes for one in each), sum(one.steps for one in each))

    def as_data(self) -> dict[str, Any]:
        """Return it as what JSON can carry; the grade by its name (`PASSED`)."""
        return {
            "task": self.task,
            "points": self.points,
            "grade": self.grade.name,
            "message": self.message,
            "cases": [case.as_data() for case in self.cases],
            "earned": self.earned,
            "note": self.note,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Self:
        """Make it from what `as_data` gave."""
        cases = tuple(CaseResult.from_data(case) for case in data["cases"])
        return cls(**{**data, "grade": Grade[data["grade"]], "cases": cases})

    def __str__(self) -> str:
        score = ""
        if self.spent:
            score = say("Beyond full marks: {spent}, the fewer the better.", spent=self.spent)
        told = (say(self.note), say(self.message), score)
        lines = [self._headline(), *filter(None, told)]
        if self.cases:
            lines.extend(["", *self._table()])
        return "\n".join(lines)

    def _headline(self) -> str:
        if self.score is None:
            return f"{self.task}: {say(self.grade.value)}"
        tried = ""
        if self.grade is Grade.PASSED:
            tried = say(" in {cases}", cases=_count(len(self.cases), "case"))
        elif self.grade is Grade.PARTLY:
            right = sum(case.right for case in self.cases)
            tried = say(
                " in {right} of {cases}", right=right, cases=_count(len(self.cases), "case")
            )
        earned = say(
            "{earned} of {points}",
            earned=f"{self.score:g}",
            points=_count(self.points, "point"),
        )
        return say(
            "{task}: {grade}{tried}, {earned}",
            task=self.task,
            grade=say(self.grade.value),
            tried=tried,
            earned=earned,
        )

    def _table(self) -> list[str]:
        """List the cases, the verdict first: `nbgrader validate` cuts lines at 80 columns."""
        rows = [("", say("your answer"), say("measured"), say("case"))]
        rows += [
            (
                say("right") if case.right else say("wrong"),
                say_name(case.answered),
                say_name(case.truth),
                _show(case),
            )
            for case in self.cases
        ]
        right, answer, measured, _ = (
            max(map(_width, column)) for column in zip(*rows, strict=True)
        )
        return [
            f"{_filled(row[0], right)}  {_filled(row[1], -answer)}  "
            f"{_filled(row[2], -measured)}  {row[3]}"
            for row in rows
        ]


def reason_in(comment: str, task: str) -> str:
    """Return why a task has no score: the verdict as text, without its headline."""
    headline, _, rest = comment.partition("\n")
    return rest if rest and headline == f"{task}: {Grade.UNGRADED.value}" else comment


class WrongAnswer(VramlabError):
    """Raised by `check` for a task that is not solved; shows as the verdict, without traceback."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(str(verdict))
        self.verdict = verdict

    def _render_traceback_(self) -> list[str]:
        """Give IPython what to show."""
        return str(self.verdict).splitlines()


def _show(case: CaseResult) -> str:
    return case.name if case.visible else say("{case} (hidden)", case=case.name)


def _count(number: int, noun: str) -> str:
    counted = f"{number} {noun}" if number == 1 else f"{number} {noun}s"
    return say(counted)


def _width(text: str) -> int:
    """How many columns of a terminal a text takes: Chinese letters take two."""
    return sum(2 if east_asian_width(letter) in "FW" else 1 for letter in text)


def _filled(text: str, columns: int) -> str:
    """Fill a text up with blanks behind it; before it, if columns are negative."""
    blanks = " " * (abs(columns) - _width(text))
    return text + blanks if columns > 0 else blanks + text
