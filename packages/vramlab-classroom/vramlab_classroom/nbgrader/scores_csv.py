"""Scores as CSV, for spreadsheets and programs: one line for each student and assignment.

A missing score is an empty field, and the column `reason` says why; it is never 0.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

from vramlab_classroom.nbgrader.scores import Score

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def scores_csv(scores: Sequence[Score]) -> str:
    """Write scores as CSV, with a column for each task that any of the assignments has."""
    tasks = list(dict.fromkeys(task.task for score in scores for task in score.tasks))
    columns = [
        *("student", "last_name", "first_name", "email", "assignment"),
        *tasks,
        *("late_penalty", "score", "max_score", "status", "submitted_utc", "hours_late", "reason"),
    ]
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(columns)
    for score in scores:
        points = {task.task: task.score for task in score.tasks}
        writer.writerow(
            [
                *map(plain_text, (score.student, score.last_name, score.first_name, score.email)),
                plain_text(score.assignment),
                *(number(points.get(task)) for task in tasks),
                "" if score.is_missing else number(score.late_penalty),
                number(score.score),
                number(score.max_score),
                score.status.value,
                score.submitted.isoformat(sep=" ", timespec="seconds") if score.submitted else "",
                number(round(score.seconds_late / 3600, 2)) if score.submitted else "",
                plain_text(score.reason),
            ]
        )
    return file.getvalue()


def number(value: float | None) -> str:
    """Write a number without idle zeros; nothing if there is none."""
    return "" if value is None else f"{round(value, 4):.15g}"


def plain_text(text: str) -> str:
    """Keep a spreadsheet from taking a text for a formula: it would run what a student wrote.

    Source: OWASP, "CSV Injection": fields that begin so get an apostrophe in front.
    """
    one_line = " ".join(text.split("\n")).strip(" ")
    return f"'{one_line}" if one_line.startswith(_FORMULA_STARTS) else one_line
