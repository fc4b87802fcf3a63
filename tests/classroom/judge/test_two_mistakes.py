"""Two mistakes at once: how they are recognised, and what a learner is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from vramlab_classroom.judge.mistakes import Mistake, Try, of
from vramlab_classroom.judge.two_mistakes import lead_on, two_at_once
from vramlab_classroom.judge.verdict import CaseResult

SIZES = ({"size": 1000, "bias": True}, {"size": 3000, "bias": False})


def weights(size: int, bias: bool, *, item_bytes: int = 4) -> int:
    return item_bytes * (size + (100 if bias else 0))


HALF = Mistake("You took 2 bytes.", lambda size, bias: 2 * (size + 100 * bias))
NO_BIAS = Mistake("You forgot the bias.", lambda size, bias: 4 * size)
A_BLOCK = Mistake("You added a block.", lambda size, bias: weights(size, bias) + 512)
MISTAKES = (HALF, NO_BIAS, A_BLOCK)


def tried(
    answer: Callable[..., object],
    right: Callable[..., int | str] = weights,
    cases: Sequence[dict[str, object]] = SIZES,
) -> list[Try]:
    kinds = {int: "int", str: "str"}
    return [
        Try(case, {"type": kinds[type(value)], "value": value}, right(**case))
        for case in cases
        for value in (answer(**case),)
    ]


def results(tries: Sequence[Try]) -> list[CaseResult]:
    return [CaseResult(each.arguments, each.is_right, "", "", visible=True) for each in tries]


@pytest.mark.parametrize(
    ("answer", "pair"),
    [
        (lambda size, bias: 4 * size + 512, (NO_BIAS, A_BLOCK)),  # differences add up
        (lambda size, bias: 2 * weights(size, bias) // 4 + 512, (HALF, A_BLOCK)),
        (lambda size, bias: 7 * size, None),
    ],
)
def test_two_mistakes_are_recognised_by_their_differences(answer, pair) -> None:
    assert two_at_once(MISTAKES, tried(answer)) == pair


def test_factors_multiply() -> None:
    double = Mistake("You counted twice.", lambda size, bias: 2 * weights(size, bias))
    half = Mistake("You took 1 byte.", lambda size, bias: weights(size, bias) // 4)
    assert two_at_once((double, half), tried(lambda size, bias: weights(size, bias) // 2)) == (
        double,
        half,
    )


def test_the_reference_with_both_changes_explains_what_no_sum_does() -> None:
    def answer(size: int, bias: bool, *, item_bytes: int = 4, least: int = 0) -> int:
        return item_bytes * max(size, least)

    mistakes = of(answer, ("One.", {"item_bytes": 2}), ("Other.", {"least": 2000}))
    found = two_at_once(mistakes, tried(lambda size, bias: 2 * max(size, 2000), answer))
    assert found is not None
    assert [each.message for each in found] == ["One.", "Other."]


def test_small_numbers_are_no_sums() -> None:
    ones = (Mistake("One more.", lambda size: size + 1), Mistake("Two.", lambda size: size + 2))
    cases = [{"size": 3}]
    assert two_at_once(ones, tried(lambda size: size + 3, lambda size: size, cases)) is None


def test_in_words_each_mistake_has_cases_of_its_own() -> None:
    words = ({"kind": "list"}, {"kind": "cycle"}, {"kind": "none"})
    one = Mistake("No lists.", lambda kind: "none" if kind == "list" else kind)
    other = Mistake("No cycles.", lambda kind: "none" if kind == "cycle" else kind)
    tries = tried(lambda kind: "none", lambda kind: kind, words)
    assert two_at_once((one, other), tries) == (one, other)
    assert lead_on((one, other), tries, results(tries)) == (
        "Two things are wrong at once. Only one of them shows in the case kind='list': which of "
        "its numbers contradicts 'none'?"
    )


def test_a_learner_is_asked_where_one_of_them_shows_alone() -> None:
    tries = tried(lambda size, bias: 4 * size + 512)
    # Both show in the first case: -400 and +512. In the second, there is no bias to forget.
    assert lead_on((NO_BIAS, A_BLOCK), tries, results(tries)) == (
        "Two things are wrong at once. Only one of them shows in the case size=3000, bias=False: "
        "your answer is 512 too large there. What do you count that does not exist?"
    )


def test_where_both_show_in_every_case_the_parts_are_told() -> None:
    tries = tried(lambda size, bias: 4 * size + 512, cases=SIZES[:1])
    assert lead_on((NO_BIAS, A_BLOCK), tries, results(tries)) == (
        "Two things are wrong at once. In the case size=1000, bias=True, one of them alone would "
        "be off by -400, and the other by +512. What is as large as each of these?"
    )
