"""Scores in the files of Canvas and Moodle: the right rows, and nothing else."""

from __future__ import annotations

import csv
import io

import pytest

from vramlab_classroom.lms.gradebook_files import (
    NotAnExportError,
    PointsDifferError,
    fill_canvas,
    fill_moodle,
)
from vramlab_classroom.nbgrader.scores import Score, TaskScore

CANVAS = """\
Student,ID,SIS User ID,SIS Login ID,Section,02 Pages and Blocks (4711),Essay (12),Final Score
,,,,,Manual Posting,,
    Points Possible,,,,,5.00,10.00,(read only)
"Lovelace, Ada",101,s1,ada,A,,7,70
"Babbage, Charles",102,s2,cb@example.org,A,1,8,80
"Hopper, Grace",103,s3,grace,B,3,9,90
"Turing, Alan",104,s4,alan,B,,9,90
"Student, Test",999,,4f2e,,,,
"""

MOODLE = """\
\ufeffIdentifier,"Full name","Email address",Status,Grade,"Maximum Grade","Grade can be changed",\
"Last modified (grade)","Feedback comments"
"Participant 71","Ada Lovelace",ada@example.org,"Submitted for grading",,5.00,Yes,-,
"Participant 72","Charles Babbage",cb@example.org,"Submitted for grading",1.00,5.00,Yes,\
"Sunday, 1 March 2026, 10:12 AM","well, no"
"Participant 73","Grace Hopper",grace@example.org,"No submission",,5.00,Yes,-,
"Participant 74","John Doe",john1@example.org,"Submitted for grading",,5.00,Yes,-,
"Participant 75","John Doe",john2@example.org,"Submitted for grading",,5.00,Yes,-,
"""


def _score(student: str, *points: float | None, penalty: float = 0, **details: str) -> Score:
    tasks = tuple(
        TaskScore(task, score, most)
        for task, score, most in zip(("block", "segment"), points, (2, 3), strict=True)
    )
    return Score(
        student=student,
        assignment=details.pop("assignment", "02_pages_and_blocks"),
        tasks=tasks,
        late_penalty=penalty,
        **details,
    )


def _missing(student: str) -> Score:
    tasks = (TaskScore("block", None, 2), TaskScore("segment", None, 3))
    return Score(student=student, assignment="02_pages_and_blocks", tasks=tasks, is_missing=True)


def _rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def test_canvas_gets_the_columns_of_the_students_and_of_the_assignment() -> None:
    filled = fill_canvas([_score("ada", 2, 1.5, penalty=0.25)], CANVAS)
    assert filled.text.splitlines() == [
        "Student,ID,SIS User ID,SIS Login ID,Section,02 Pages and Blocks (4711)",
        "    Points Possible,,,,,5.00",
        '"Lovelace, Ada",101,s1,ada,A,3.25',  # 2 + 1.5 - 0.25
        '"Babbage, Charles",102,s2,cb@example.org,A,1',
        '"Hopper, Grace",103,s3,grace,B,3',
        '"Turing, Alan",104,s4,alan,B,',
        '"Student, Test",999,,4f2e,,',
    ]
    assert filled.unmatched == ()


@pytest.mark.parametrize(
    "score",
    [
        _score("babbagecharles-102", 2, 3),
        _score("102", 2, 3),
        _score("someone", 2, 3, lms_id="102"),
        _score("s2", 2, 3),
        _score("CB@example.org", 2, 3),
        _score("charles", 2, 3, email="cb@example.org"),
    ],
    ids=[
        "as collected",
        "by Canvas's id",
        "by lms_user_id",
        "by SIS user id",
        "by login",
        "by address",
    ],
)
def test_canvas_students_are_found_by_whatever_they_are_known_by(score: Score) -> None:
    filled = fill_canvas([score], CANVAS)
    grades = {row["ID"]: row["02 Pages and Blocks (4711)"] for row in _rows(filled.text)}
    assert grades["102"] == "5"
    assert grades["103"] == "3"
    assert filled.unmatched == ()


def test_what_could_not_be_graded_is_empty_and_who_submitted_nothing_keeps_the_field() -> None:
    scores = [_score("cb@example.org", 2, None), _missing("grace"), _score("alan", 0, 0)]
    grades = {
        row["ID"]: row["02 Pages and Blocks (4711)"]
        for row in _rows(fill_canvas(scores, CANVAS).text)
    }
    assert grades["102"] == ""  # it was 1
    assert grades["103"] == "3"
    assert grades["104"] == "0"


def test_an_assignment_that_canvas_does_not_have_gets_a_column() -> None:
    filled = fill_canvas([_score("ada", 2, 3, assignment="05_one_training_step")], CANVAS)
    rows = _rows(filled.text)
    assert rows[0]["05_one_training_step"] == "5"  # points possible
    assert rows[1]["05_one_training_step"] == "5"
    assert rows[2]["05_one_training_step"] == ""


def test_canvas_in_languages_with_decimal_commas_separates_by_semicolons() -> None:
    export = CANVAS.replace('"Lovelace, Ada"', "Ada").replace(",", ";").replace("5.00", "5,00")
    filled = fill_canvas([_score("ada", 2, 1.5)], export)
    assert "Ada;101;s1;ada;A;3.5\r\n" in filled.text


def test_other_points_in_the_lms_are_an_error() -> None:
    with pytest.raises(PointsDifferError, match=r"is worth 5 points here, but 100 in Canvas; set"):
        fill_canvas([_score("ada", 2, 3)], CANVAS.replace(",5.00,", ",100,"))
    with pytest.raises(PointsDifferError, match=r"is worth 5 points here, but 100.00 in Moodle"):
        fill_moodle([_score("ada", 2, 3)], MOODLE.replace("5.00", "100.00"))


def test_files_from_elsewhere_are_an_error() -> None:
    with pytest.raises(NotAnExportError, match="open Grades, choose Export"):
        fill_canvas([_score("ada", 2, 3)], MOODLE)
    with pytest.raises(NotAnExportError, match="Download grading worksheet"):
        fill_moodle([_score("ada", 2, 3)], CANVAS)
    with pytest.raises(NotAnExportError):
        fill_canvas([_score("ada", 2, 3)], "")


def test_moodle_gets_its_worksheet_back_with_grades() -> None:
    scores = [_score("ada@example.org", 2, 1.5), _score("charles.babbage", 2, None)]
    filled = fill_moodle(scores, MOODLE)
    assert filled.text.startswith("\ufeffIdentifier,Full name,Email address,Status,Grade,")
    before, after = _rows(MOODLE), _rows(filled.text)
    assert after[0] == {**before[0], "Grade": "3.5"}
    assert after[1] == {**before[1], "Grade": ""}
    assert after[2:] == before[2:]
    assert filled.unmatched == ()


def test_two_of_one_name_are_told_apart_by_number() -> None:
    scores = [_score("john.doe-74", 1, 0), _score("john.doe-75", 2, 3)]
    grades = {row["Identifier"]: row["Grade"] for row in _rows(fill_moodle(scores, MOODLE).text)}
    assert grades["Participant 74"] == "1"
    assert grades["Participant 75"] == "5"
