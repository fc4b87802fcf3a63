"""Points by the share of cases that are right: what earns some, and what none."""

from __future__ import annotations

import pytest
import stepwise_exercise

from vramlab_classroom.judge.job_pool import JobPool
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.partial_credit import partial_points
from vramlab_classroom.judge.verdict import CaseResult, Grade, Verdict

EXERCISE = stepwise_exercise.EXERCISE
RIGHT = "def rounded(size):\n    return -(-size // 8) * 8"


def cases(visible: str, hidden: str = "") -> list[CaseResult]:
    """Give cases from letters: r for right, w for wrong."""
    return [
        CaseResult({}, letter == "r", "", "", visible=is_visible)
        for letters, is_visible in ((visible, True), (hidden, False))
        for letter in letters
    ]


@pytest.mark.parametrize(
    ("visible", "hidden", "points"),
    [
        ("rrrr", "rrrw", 2),  # 3 * 3/4 = 2.25, in steps of half a point 2
        ("wrrr", "rrrr", 2.5),  # all hidden ones, but 7 of 8: 3 * 7/8 = 2.625
        ("rrrr", "rrww", 1.5),  # 3 * 1/2
        ("rrrr", "rwww", 0),  # a quarter of the hidden ones is less than half
        ("rrrrrrrr", "wwww", 0),  # whoever looks up what is visible
        ("wwww", "rrww", 0),  # 2 of 8
        ("rrw", "", 2),  # on the visible cases alone
    ],
)
def test_points_are_in_steps_of_half_a_point_by_the_hidden_cases(
    visible: str, hidden: str, points: float
) -> None:
    assert partial_points(3, cases(visible, hidden)) == points


def judged(pool: JobPool, source: str, seed: str | None = "s") -> Verdict:
    return Judge(pool, seed).judge(EXERCISE, "price", [RIGHT, source])


def test_an_answer_that_forgets_one_rule_earns_what_the_others_are_worth(pool: JobPool) -> None:
    verdict = judged(pool, "def price(size):\n    return 10 + rounded(size)")  # 10 for nothing
    # Of the cases, 7 of 8 are right: 3 * 7/8 = 2.625.
    assert (verdict.grade, verdict.score) == (Grade.PARTLY, 2.5)
    assert f"{verdict}".splitlines()[:2] == [
        "price: partly right in 7 of 8 cases, 2.5 of 3 points",
        "1 of 8 cases are wrong; the first is off by +10 (+0.0000 MiB).",
    ]


def test_an_answer_that_is_right_by_accident_earns_nothing(pool: JobPool) -> None:
    looked_up = "{0: 0, 3: 18, 16: 26, 17: 34}"
    verdict = judged(pool, f"def price(size):\n    return {looked_up}.get(size, 50)")
    # All visible cases were looked up; of the hidden ones, 40 costs 50 and the others do not.
    assert [case.right for case in verdict.cases] == [True] * 4 + [False, False, True, False]
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)


def test_a_task_that_does_not_say_so_has_all_points_or_none(pool: JobPool) -> None:
    source = "def rounded(size):\n    return size // 8 * 8 + 8"
    verdict = Judge(pool, "s").judge(EXERCISE, "rounded", [source])
    assert [case.right for case in verdict.cases] == [True, False, True]  # 16 is 24
    assert (verdict.grade, verdict.score) == (Grade.FAILED, 0)
