"""Answers that build on a wrong one are judged with the right one in its place."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import stepwise_exercise

from vramlab_classroom.judge.follow_through import find_following, right_answers
from vramlab_classroom.judge.job_pool import JobPool
from vramlab_classroom.judge.judge import Judge
from vramlab_classroom.judge.verdict import Grade, Verdict

EXERCISE = stepwise_exercise.EXERCISE
NOTE = "Judged with the right rounded instead of yours."

ROUNDED = "STEP = 8\n\ndef rounded(size):\n    return -(-size // STEP) * STEP"
PRICE = "def price(size):\n    return 10 + rounded(size) if size else 0"
WRONG = "def rounded(size):\n    return size // 8 * 8"


@pytest.fixture
def rights(tmp_path: Path) -> dict[str, str]:
    """The right answers, from a master notebook."""
    master = tmp_path / "stepwise.ipynb"
    cells = [
        {"cell_type": "code", "metadata": {}, "source": source.splitlines(keepends=True)}
        for source in (ROUNDED, PRICE)
    ]
    master.write_text(json.dumps({"cells": cells}))
    return right_answers(EXERCISE, master)


def judged(pool: JobPool, rights: dict[str, str], *cells: str) -> dict[str, Verdict]:
    return Judge(pool, "s").judge_all(EXERCISE, dict.fromkeys(rights, cells), rights)


@pytest.mark.parametrize(
    "cells",
    [
        [WRONG, PRICE],
        [f"{WRONG}\n\n{PRICE}"],
        ["def rounded(size):\n    raise NotImplementedError", PRICE],
        ["def rounded(size):\n    return (size", PRICE],
        ["def rounded(size):\n    while True:\n        pass", PRICE],
        [PRICE],
        [
            WRONG,
            "prices = {n: 10 + rounded(n) for n in range(1, 200)}",
            "def price(size):\n    return prices.get(size, 0)",
        ],
        ["STEP = 1", WRONG, PRICE + " * STEP"],
    ],
    ids=["wrong", "one cell", "unanswered", "broken", "endless", "deleted", "table", "same name"],
)
def test_a_later_answer_does_not_pay_for_an_earlier_one(
    pool: JobPool, rights: dict[str, str], cells: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vramlab_classroom.judge.job_pool.ANSWER_SECONDS", 1)
    verdicts = judged(pool, rights, *cells)
    assert verdicts["rounded"].score == 0
    assert (verdicts["price"].grade, verdicts["price"].score) == (Grade.PASSED, 3)
    assert verdicts["price"].note == NOTE
    assert NOTE in f"{verdicts['price']}".splitlines()


def test_it_pays_for_its_own_mistakes(pool: JobPool, rights: dict[str, str]) -> None:
    price = judged(pool, rights, WRONG, "def price(size):\n    return 10 + rounded(size)")["price"]
    assert (price.grade, price.score, price.note) == (Grade.PARTLY, 2.5, NOTE)
    price = judged(pool, rights, WRONG, "def price(size):\n    return rounded(size)")["price"]
    assert (price.grade, price.score, price.note) == (Grade.FAILED, 0, "")


def test_where_the_earlier_answer_is_right_nothing_takes_its_place(
    pool: JobPool, rights: dict[str, str]
) -> None:
    # It does something else with a float, which its own task does not ask about.
    own = "def rounded(size):\n    return -(-size // 8) * 8 if type(size) is int else [size]"
    price = "def price(size):\n    return 10 + rounded(size + 0.0)[0] if size else 0"
    verdicts = judged(pool, rights, own, price)
    assert verdicts["rounded"].grade is Grade.PASSED
    # 0, 16, 24 and 40 need no rounding: 4 of 8 cases.
    assert (verdicts["price"].score, verdicts["price"].note) == (1.5, "")


def test_an_answer_that_needs_no_other_is_as_it_is(rights: dict[str, str]) -> None:
    assert find_following("price", [WRONG, "def price(size):\n    return 1"], rights) == {}
    assert find_following("rounded", [WRONG, PRICE], rights) == {}
