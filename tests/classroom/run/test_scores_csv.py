"""Scores as CSV: a missing score is empty, and no cell is a student's formula."""

from __future__ import annotations

import csv
import io
from datetime import datetime

import pytest

from vramlab_classroom.nbgrader.scores import Score, TaskScore
from vramlab_classroom.nbgrader.scores_csv import plain_text, scores_csv

GRADED = Score(
    student="ada",
    assignment="02",
    tasks=(TaskScore("block_bytes", 2, 2), TaskScore("segment_bytes", 1.5, 3)),
    submitted=datetime(2026, 3, 1, 13, 30),
    seconds_late=5400,
    late_penalty=0.25,
    first_name="Ada",
    last_name="Lovelace",
)
UNGRADED = Score(
    student="bob",
    assignment="02",
    tasks=(TaskScore("block_bytes", None, 2, "a, b\n=c"), TaskScore("segment_bytes", 0, 3)),
    submitted=datetime(2026, 3, 1, 11),
)
MISSING = Score(
    student="eve", assignment="03", tasks=(TaskScore("total", None, 1),), is_missing=True
)


def test_one_line_for_each_student_and_assignment() -> None:
    assert scores_csv([GRADED, UNGRADED, MISSING]) == (
        "student,last_name,first_name,email,assignment,block_bytes,segment_bytes,total,"
        "late_penalty,score,max_score,status,submitted_utc,hours_late,reason\n"
        # 2 + 1.5 - 0.25 = 3.25 of 2 + 3; 5400 s = 1.5 h
        "ada,Lovelace,Ada,,02,2,1.5,,0.25,3.25,5,graded,2026-03-01 13:30:00,1.5,\n"
        "bob,,,,02,,0,,0,,5,could not be graded,2026-03-01 11:00:00,0,"
        '"block_bytes: a, b =c"\n'
        "eve,,,,03,,,,,,1,not submitted,,,not submitted\n"
    )


def test_a_missing_score_is_empty_and_a_zero_is_zero() -> None:
    rows = list(csv.DictReader(io.StringIO(scores_csv([UNGRADED]))))
    assert rows[0]["block_bytes"] == ""
    assert rows[0]["segment_bytes"] == "0"
    assert rows[0]["score"] == ""


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", " =1", "\t=1", "\n=1"])
def test_no_field_is_a_formula(text: str) -> None:
    assert plain_text(text).startswith("'")
