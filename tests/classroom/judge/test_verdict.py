"""How a verdict reads."""

from __future__ import annotations

import json

import pytest

from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict


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


def test_a_task_that_is_partly_right_says_in_how_many_cases_and_what_they_earn() -> None:
    cases = tuple(
        CaseResult({"size": size}, size < 3, "1", "1", visible=True) for size in (1, 2, 3)
    )
    verdict = Verdict("f", 2, Grade.PARTLY, "You forgot 3.", cases, earned=1.5, note="Try again.")
    assert verdict.score == 1.5
    assert str(verdict).splitlines()[:3] == [
        "f: partly right in 2 of 3 cases, 1.5 of 2 points",
        "Try again.",
        "You forgot 3.",
    ]
    assert Verdict.from_data(json.loads(json.dumps(verdict.as_data()))) == verdict


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
