"""What a learner predicted and solved so far: a file in the learner's own folder, and nowhere else.

    prediction_score()          a table of the points, and where the file is

The first answer to a question counts. Deleting the file starts afresh.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from datetime import date
from pathlib import Path
from typing import Any

import platformdirs

from vramlab.table import Table
from vramlab_course.translations.speech import say
from vramlab_course.widgets.guesses import MOST_POINTS

FORMAT = 1
"""Version of the file; raised when a field changes its meaning."""

ELSEWHERE = "elsewhere"
"""For what was predicted where the notebook's name is not known."""


@dataclass(frozen=True)
class PredictionOutcome:
    """What became of one question."""

    lesson: str
    """The notebook's name, such as '05_one_training_step'."""
    question: str
    predicted: str | None
    """As '160 MiB' or '150 to 170 MiB'; None if it was skipped."""
    measured: str
    points: int
    """0 to `MOST_POINTS`."""
    on: str
    """The day, as '2026-11-22'."""


@dataclass(frozen=True)
class SolvedTask:
    """A task whose answer held on the cases that learners see."""

    exercise: str
    """Its name, such as '05_one_training_step'."""
    task: str
    on: str
    """The day when that was so first, as '2026-11-22'."""


class PredictionRecord:
    """The outcomes of all questions, and the tasks that were solved, in a JSON file.

    Args:
        path: of the file; it need not exist.

    Attributes:
        path: of the same file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def outcomes(self) -> list[PredictionOutcome]:
        """Read the file: empty if it is missing.

        Raises:
            OSError: it cannot be read.
            BrokenRecord: it is no record.
        """
        return self._read()[0]

    def solved_tasks(self) -> list[SolvedTask]:
        """Read which tasks were solved: none if the file is missing.

        Raises:
            OSError: it cannot be read.
            BrokenRecord: it is no record.
        """
        return self._read()[1]

    def _read(self) -> tuple[list[PredictionOutcome], list[SolvedTask]]:
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return [], []
        except UnicodeDecodeError:
            raise BrokenRecord(self.path) from None
        return _parse(text, self.path)

    def add(self, outcome: PredictionOutcome) -> str:
        """Save an outcome, unless its question has one, and return the points so far.

        A file that is broken is renamed, and a new one begun. What cannot be written is reported.
        """
        try:
            known, solved, told = self._known()
            if any(_question(each) == _question(outcome) for each in known):
                before = say("You had answered this before; your first answer counts.")
                return f"{before} {_so_far(known)}"
            self._write([*known, outcome], solved)
        except OSError as error:
            return f"Your points could not be written down: {error}."
        return _so_far([*known, outcome]) + told

    def add_solved(self, exercise: str, task: str) -> str:
        """Save that a task is solved, and return the problem if that failed.

        Returns:
            '', or the message to show: the file could not be written, or was broken and renamed.
        """
        try:
            known, solved, told = self._known()
            if (exercise, task) not in {(each.exercise, each.task) for each in solved}:
                self._write(known, [*solved, SolvedTask(exercise, task, today())])
        except OSError as error:
            return f"That it is solved could not be written down: {error}."
        return told.strip()

    def table(self) -> Table:
        """Show the points lesson by lesson.

        Raises:
            OSError: the file cannot be read.
            BrokenRecord: it is no record.
        """
        outcomes = self.outcomes()
        lessons = sorted({outcome.lesson for outcome in outcomes})
        rows = [
            _row(lesson, [each for each in outcomes if each.lesson == lesson]) for lesson in lessons
        ]
        return Table(
            caption="Your predictions so far",
            header=("lesson", "answered", "skipped", "points", "possible"),
            rows=(*rows, _row("all", outcomes)),
            notes=(
                f"Kept in {self.path}, and nowhere else. The file is yours: delete it to start "
                "afresh.",
            ),
        )

    def _known(self) -> tuple[list[PredictionOutcome], list[SolvedTask], str]:
        """Read the file; where it is broken, set it aside, and say so."""
        try:
            return *self._read(), ""
        except BrokenRecord:
            aside = self._set_aside()
            return [], [], f" Your record was broken: it is kept as {aside}, a new one begun."

    def _set_aside(self) -> Path:
        number = 1
        while (aside := self.path.with_suffix(f".broken-{number}.json")).exists():
            number += 1
        return self.path.rename(aside)

    def _write(self, outcomes: Iterable[PredictionOutcome], solved: Iterable[SolvedTask]) -> None:
        """Write all of it, or nothing: a program that is killed leaves the old file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with open(handle, "w", encoding="utf-8") as file:
                data = {
                    "format": FORMAT,
                    "predictions": [asdict(each) for each in outcomes],
                    "tasks": [asdict(each) for each in solved],
                }
                json.dump(data, file, indent=1, ensure_ascii=False)
                file.flush()
                os.fsync(file.fileno())
            os.replace(name, self.path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise


class BrokenRecord(ValueError):
    """A file is no record of predictions."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path} is no record of predictions: something else has written to it, or a newer "
            "vramlab. Rename or delete it, and the next prediction begins a new one"
        )


def own_record() -> PredictionRecord:
    """Return the record of the current user, in the folder that the system has for such data."""
    folder = platformdirs.user_data_path("vramlab", appauthor=False)
    return PredictionRecord(folder / "predictions.json")


def prediction_score() -> Table:
    """Show what you predicted so far, lesson by lesson, and where that is kept.

    Raises:
        OSError: the file cannot be read.
        BrokenRecord: the file is no record.
    """
    return own_record().table()


def this_lesson() -> str:
    """Return the name of the notebook that this kernel runs, as jupyter_server tells it."""
    # Source: `get_kernel_env` in jupyter_server/services/sessions/sessionmanager.py, since 2.0.
    return Path(os.environ.get("JPY_SESSION_NAME", ELSEWHERE)).stem


def today() -> str:
    """Return the day as '2026-11-22'."""
    return date.today().isoformat()


def _parse(text: str, path: Path) -> tuple[list[PredictionOutcome], list[SolvedTask]]:
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise BrokenRecord(path)
        # Files of older versions know of no tasks.
        solved = [_solved(each) for each in data.get("tasks", [])]
        return [_outcome(each) for each in data["predictions"]], solved
    except (ValueError, TypeError, KeyError):
        raise BrokenRecord(path) from None


def _solved(data: dict[str, Any]) -> SolvedTask:
    task = SolvedTask(**{field.name: data[field.name] for field in fields(SolvedTask)})
    texts = (task.exercise, task.task, task.on)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"not all are text: {texts}")
    return task


def _outcome(data: dict[str, Any]) -> PredictionOutcome:
    outcome = PredictionOutcome(
        **{field.name: data[field.name] for field in fields(PredictionOutcome)}
    )
    texts = (outcome.lesson, outcome.question, outcome.measured, outcome.on)
    if not all(isinstance(text, str) for text in texts):
        raise TypeError(f"not all are text: {texts}")
    if outcome.points not in range(MOST_POINTS + 1):
        raise ValueError(f"{outcome.points} points")
    return outcome


def _question(outcome: PredictionOutcome) -> tuple[str, str]:
    return outcome.lesson, outcome.question


def _so_far(outcomes: list[PredictionOutcome]) -> str:
    points = sum(outcome.points for outcome in outcomes)
    count = len(outcomes)
    questions = say("1 prediction") if count == 1 else say("{count} predictions", count=count)
    return say(
        "In the course so far: {points} of {most} points, {questions}.",
        points=points,
        most=MOST_POINTS * count,
        questions=questions,
    )


def _row(name: str, outcomes: list[PredictionOutcome]) -> tuple[str, ...]:
    skipped = sum(outcome.predicted is None for outcome in outcomes)
    points = sum(outcome.points for outcome in outcomes)
    possible = MOST_POINTS * len(outcomes)
    return name, *map(str, (len(outcomes) - skipped, skipped, points, possible))
