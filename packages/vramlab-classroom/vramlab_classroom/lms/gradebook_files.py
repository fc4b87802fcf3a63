"""Scores for the gradebooks of Canvas and Moodle: filled into a file that these exported.

They know their students by numbers of their own, so their file is where the rows come from. Only
the fields of the assignments that were graded here change:

- a score is filled in, after the late penalty;
- what could not be graded becomes an empty field, never 0;
- where nothing was submitted here, the field stays what it was.

Sources: Canvas, lib/gradebook_exporter.rb and lib/gradebook_importer.rb of instructure/canvas-lms;
Moodle ("Offline grading worksheet"), mod/assign/feedback/offline/locallib.php and
importgradeslib.php of moodle/moodle, and mod/assign/lang/en/assign.php for the columns' names.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from vramlab.errors import VramlabError
from vramlab_classroom.lms.student_ids import student_id
from vramlab_classroom.lms.submission_names import canvas_id, letters
from vramlab_classroom.nbgrader.scores import Score, ScoreStatus
from vramlab_classroom.nbgrader.scores_csv import number

_CANVAS_STUDENT_COLUMNS = (
    "Student",
    "LastName",
    "FirstName",
    "ID",
    "SIS User ID",
    "SIS Login ID",
    "Integration ID",
    "Root Account",
    "Section",
)
_POINTS_POSSIBLE = "Points Possible"
_BOM = "\ufeff"


class NotAnExportError(VramlabError, ValueError):
    """The file is not what it should be filled into; the message says what it lacks."""


class PointsDifferError(VramlabError, ValueError):
    """There, the assignment is worth other points than here."""


@dataclass(frozen=True)
class Merged:
    """A file to import, and who is not in it."""

    text: str
    unmatched: tuple[str, ...]
    """Students with a submission here, for whom the file has no row."""


Row = dict[str, str]
Keys = Callable[[Row], list[str]]


@dataclass(frozen=True)
class _Table:
    """A CSV file, and how it was written."""

    columns: list[str]
    rows: list[Row]
    delimiter: str
    has_bom: bool

    @classmethod
    def read(cls, text: str) -> _Table:
        has_bom, text = text.startswith(_BOM), text.removeprefix(_BOM)
        first_line = text.partition("\n")[0]
        delimiter = ";" if first_line.count(";") > first_line.count(",") else ","
        lines = list(csv.reader(io.StringIO(text), delimiter=delimiter))
        columns = lines[0] if lines else []
        rows = [
            dict(zip(columns, line + [""] * (len(columns) - len(line)), strict=False))
            for line in lines[1:]
            if any(line)
        ]
        return cls(columns, rows, delimiter, has_bom)

    def write(self, columns: Sequence[str]) -> str:
        file = io.StringIO()
        writer = csv.writer(file, delimiter=self.delimiter, lineterminator="\r\n")
        writer.writerow(columns)
        writer.writerows([row[column] for column in columns] for row in self.rows)
        return f"{_BOM if self.has_bom else ''}{file.getvalue()}"


def fill_canvas(scores: Sequence[Score], exported: str) -> Merged:
    """Fill scores into a gradebook that Canvas exported (Grades, then Export, as CSV).

    The file to import has the students' columns and those of the assignments, so that importing it
    changes nothing else. A column belongs to an assignment if its title is the assignment's name,
    whatever its capitals and signs (`02 Pages and Blocks (4711)` is `02_pages_and_blocks`); an
    assignment without a column gets a new one, for which Canvas makes an assignment.

    Raises:
        NotAnExportError: the file is not from Canvas.
        PointsDifferError: an assignment is worth other points in Canvas.
    """
    table = _Table.read(exported)
    if "ID" not in table.columns or "Section" not in table.columns:
        raise NotAnExportError(
            "this is no gradebook exported by Canvas: it lacks the columns ID and Section; in "
            "Canvas, open Grades, choose Export, and give that file"
        )
    points = [row for row in table.rows if _POINTS_POSSIBLE in row[table.columns[0]]]
    # Rows without an id say how grades are posted: Canvas skips them when it reads.
    students = [row for row in table.rows if row not in points and row["ID"].strip()]
    points_row = points[0] if points else dict.fromkeys(table.columns, "")
    points_row[table.columns[0]] = f"    {_POINTS_POSSIBLE}"
    unmatched: dict[str, None] = {}
    columns = [column for column in table.columns if column in _CANVAS_STUDENT_COLUMNS]
    for assignment, of_assignment in _by_assignment(scores).items():
        if all(score.status is ScoreStatus.MISSING for score in of_assignment):
            continue  # no submission yet: no column, so no assignment, for it
        column = _find_column(table.columns, assignment)
        max_score = of_assignment[0].max_score
        for row in table.rows:
            row.setdefault(column, "")
        if not points_row.get(column, "").strip():
            points_row[column] = number(max_score)
        _check_points(assignment, max_score, points_row[column], "Canvas")
        columns.append(column)
        unmatched |= dict.fromkeys(_fill(of_assignment, students, column, _canvas_keys))
    filled = _Table(table.columns, [points_row, *students], table.delimiter, table.has_bom)
    return Merged(filled.write(columns), tuple(unmatched))


def fill_moodle(scores: Sequence[Score], worksheet: str) -> Merged:
    """Fill the scores of one assignment into a grading worksheet that Moodle exported.

    Moodle takes the file back at the same place ("Upload grading worksheet"); it skips empty
    grades. All columns stay: by "Last modified (grade)" Moodle knows what has changed since.

    Raises:
        NotAnExportError: the file is no grading worksheet.
        PointsDifferError: the assignment is worth other points in Moodle.
        ValueError: the scores are of more than one assignment.
    """
    if len(_by_assignment(scores)) != 1:
        raise ValueError("a grading worksheet of Moodle is for one assignment")
    table = _Table.read(worksheet)
    if "Identifier" not in table.columns or "Grade" not in table.columns:
        raise NotAnExportError(
            "this is no grading worksheet of Moodle: it lacks the columns Identifier and Grade; "
            "in Moodle, allow 'Offline grading worksheet' among the assignment's feedback types, "
            "view all submissions, choose 'Download grading worksheet' (with Moodle in English), "
            "and give that file"
        )
    maximum = next((name for name in table.columns if name.lower() == "maximum grade"), None)
    for row in table.rows:
        if maximum and row[maximum].strip():
            _check_points(scores[0].assignment, scores[0].max_score, row[maximum], "Moodle")
    unmatched = _fill(scores, table.rows, "Grade", _moodle_keys)
    return Merged(table.write(table.columns), tuple(unmatched))


def _by_assignment(scores: Iterable[Score]) -> dict[str, list[Score]]:
    found: dict[str, list[Score]] = {}
    for score in scores:
        found.setdefault(score.assignment, []).append(score)
    return found


def _find_column(columns: Sequence[str], assignment: str) -> str:
    """Find the column whose title is the assignment's name; Canvas adds its id to the title."""
    for column in columns:
        title = re.sub(r"\s*\(\d+\)$", "", column)
        if letters(title) == letters(assignment):
            return column
    return assignment


def _check_points(assignment: str, max_score: float, there: str, where: str) -> None:
    if _as_number(there) != max_score:
        raise PointsDifferError(
            f"{assignment} is worth {number(max_score)} points here, but {there.strip()} in "
            f"{where}; set its points there to {number(max_score)}, export again, and give that "
            "file"
        )


def _as_number(text: str) -> float | None:
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def _canvas_keys(row: Row) -> list[str]:
    """Return what a student may be known by here, the surest first."""
    login = row.get("SIS Login ID", "")
    name = row.get("Student") or f"{row.get('LastName', '')}{row.get('FirstName', '')}"
    collected = canvas_id(name, row["ID"].strip())
    return [collected, row["ID"], login, row.get("SIS User ID", ""), student_id(login)]


def _moodle_keys(row: Row) -> list[str]:
    """Return what a student may be known by here, the surest first.

    Moodle numbers its participants again for each assignment, so a number tells two students of one
    name apart only where it is part of their ids.
    """
    name_id = student_id(row.get("Full name", ""))
    participant = re.sub(r"\D", "", row["Identifier"])
    address = row.get("Email address", "")
    number_id = row.get("ID number", "")
    return [f"{name_id}-{participant}", address, student_id(address), number_id, name_id]


def _fill(scores: Sequence[Score], rows: Sequence[Row], column: str, keys: Keys) -> list[str]:
    """Fill the scores of one assignment into a column; list the students without a row."""
    students = _by_name(scores)
    seen = set()
    for row in rows:
        found = (students.get(key.strip().casefold()) for key in keys(row) if key.strip())
        score = next((score for score in found if score is not None), None)
        if score is None:
            continue
        seen.add(score.student)
        if score.status is not ScoreStatus.MISSING:
            row[column] = number(score.score)
    return [
        score.student
        for score in scores
        if score.student not in seen and score.status is not ScoreStatus.MISSING
    ]


def _by_name(scores: Sequence[Score]) -> dict[str, Score]:
    """Return each score by all that its student is known by; the surest names win."""
    return {
        name.casefold(): score
        for names in ("email", "student", "lms_id")
        for score in scores
        if (name := getattr(score, names))
    }
