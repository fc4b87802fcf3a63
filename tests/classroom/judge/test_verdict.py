"""How a verdict reads."""

from __future__ import annotations

import json

import pytest

from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict, reason_in


def test_a_passed_task_shows_its_cases_in_columns() -> None:
    verdict = Verdict(
        "f",
        2,
        Grade.PASSED,
        "",
        (
            CaseResult({"size": 4}, True, "512", "512", visible=True),
            CaseResult({"size": 1000, "unit": "page"}, True, "1024", "1024", visible=False),
        ),
    )
    assert str(verdict) == (
        "f: passed in 2 cases, 2 of 2 points\n"
        "\n"
        "       your answer  measured  case\n"
        "right          512       512  size=4\n"
        "right         1024      1024  size=1000, unit='page' (hidden)"
    )


def test_a_failed_task_says_why_first() -> None:
    case = CaseResult({"size": 4}, False, "4", "512", visible=True)
    assert str(Verdict("f", 1, Grade.FAILED, "You forgot to round.", (case,))) == (
        "f: failed, 0 of 1 point\n"
        "You forgot to round.\n"
        "\n"
        "       your answer  measured  case\n"
        "wrong            4       512  size=4"
    )


def test_what_could_not_be_graded_speaks_of_no_points() -> None:
    verdict = Verdict("f", 2, Grade.UNGRADED, "Its process ended with SIGKILL.")
    assert verdict.score is None
    assert str(verdict) == "f: could not be graded\nIts process ended with SIGKILL."


def test_a_task_that_is_partly_right_says_in_how_many_cases_and_what_they_earn() -> None:
    cases = tuple(
        CaseResult({"size": size}, size < 3, "1", "1", visible=True) for size in (1, 2, 3)
    )
    verdict = Verdict("f", 2, Grade.PARTLY, "You forgot 3.", cases, earned=1.5, note="Once more.")
    assert verdict.score == 1.5
    assert str(verdict).splitlines()[:3] == [
        "f: partly right in 2 of 3 cases, 1.5 of 2 points",
        "Once more.",
        "You forgot 3.",
    ]
    assert Verdict.from_data(json.loads(json.dumps(verdict.as_data()))) == verdict


def test_a_long_case_is_cut() -> None:
    case = CaseResult({"sizes": list(range(100))}, True, "1", "1", visible=True)
    shown = str(Verdict("f", 1, Grade.PASSED, "", (case,))).splitlines()[-1]
    assert "  sizes=[0, 1, 2," in shown
    assert shown.endswith("...")
    assert len(shown) < 120


@pytest.mark.parametrize("grade", Grade)
def test_a_verdict_travels_as_json(grade: Grade) -> None:
    cases = (
        CaseResult({"size": 4, "kind": "page"}, True, "512", "512", visible=True),
        CaseResult({"sizes": [1, 2], "deep": {"a": None}}, False, "none", "x", visible=False),
    )
    verdict = Verdict("f", 2, grade, "You forgot to röund.\n    in the line: f()", cases)
    travelled = Verdict.from_data(json.loads(json.dumps(verdict.as_data())))
    assert travelled == verdict
    assert str(travelled) == str(verdict)


def test_the_grade_of_a_verdict_travels_by_name() -> None:
    assert Verdict("f", 2, Grade.UNGRADED, "").as_data() == {
        "task": "f",
        "points": 2,
        "grade": "UNGRADED",
        "message": "",
        "cases": [],
        "earned": None,
        "note": "",
    }


def test_the_reason_of_a_missing_grade_is_what_stands_below_its_headline() -> None:
    verdict = Verdict("f", 1, Grade.UNGRADED, "Its process ended.")
    assert str(verdict) == "f: could not be graded\nIts process ended."
    assert reason_in(str(verdict), "f") == "Its process ended."
    assert reason_in("read it again\nand again", "f") == "read it again\nand again"
    assert reason_in("", "f") == ""
