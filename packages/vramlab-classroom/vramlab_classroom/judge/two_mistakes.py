"""Recognize two of a task's mistakes at once, and ask about one of them.

Two mistakes explain an answer together if the reference answer gives it with both of their changes;
if their differences from the truth add up to it; if their factors multiply to it; or, in words, if
each explains some of the cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import combinations
from typing import Any

from vramlab_classroom.judge.mistakes import Mistake, Mistakes, Try, Twofold
from vramlab_classroom.judge.verdict import CaseResult

LEAST_NUMBER = 1000
"""Numbers below it are sums or products of others too often by accident."""

Pair = tuple[Mistake, Mistake]


def two_at_once(mistakes: Sequence[Mistake], tries: Sequence[Try]) -> Pair | None:
    """Find two mistakes that explain an answer to every case together, if there are such."""
    for one, other, answer in _candidates(mistakes, tries):
        try:
            together = [answer(each) == each.outcome.get("value") for each in tries]
        except (ArithmeticError, LookupError, TypeError, ValueError):
            continue  # the reference answer need not bear both changes
        if all(together) and _shows(one, tries) and _shows(other, tries):
            return one, other
    return None


def _candidates(
    mistakes: Sequence[Mistake], tries: Sequence[Try]
) -> Iterator[tuple[Mistake, Mistake, Callable[[Try], Any]]]:
    if isinstance(mistakes, Mistakes):
        for both in mistakes.twofold():
            yield both.one, both.other, partial(_by_reference, both)
    numbers = all(isinstance(each.truth, int) for each in tries)
    if numbers and max(abs(int(each.truth)) for each in tries) < LEAST_NUMBER:
        return
    for one, other in combinations(mistakes, 2):
        for way in (_sum, _product) if numbers else (_whichever,):
            yield one, other, partial(_together, way, one, other)


def _by_reference(both: Twofold, each: Try) -> Any:
    return both.answer(**each.arguments)


def _together(way: Callable[..., Any], one: Mistake, other: Mistake, each: Try) -> Any:
    return way(one.answer(**each.arguments), other.answer(**each.arguments), each.truth)


def _sum(one: Any, other: Any, truth: Any) -> Any:
    return one + other - truth


def _product(one: Any, other: Any, truth: Any) -> Any:
    return one * other // truth if truth and one * other % truth == 0 else None


def _whichever(one: Any, other: Any, truth: Any) -> Any:
    return other if one == truth else one


def _shows(mistake: Mistake, tries: Sequence[Try]) -> bool:
    return any(mistake.answer(**each.arguments) != each.truth for each in tries)


def lead_on(both: Pair, tries: Sequence[Try], cases: Sequence[CaseResult]) -> str:
    """Report that there are two mistakes, and ask about one where it shows alone."""
    wrong = [
        (each, case)
        for each, case in zip(tries, cases, strict=True)
        if case.visible and not each.is_right
    ]
    for each, case in wrong:
        if sum(mistake.answer(**each.arguments) != each.truth for mistake in both) == 1:
            return (
                f"Two things are wrong at once. Only one of them shows in the case {case.name}: "
                f"{_question(each)}"
            )
    if not wrong:
        return "Two things are wrong at once. Each shows in hidden cases only."
    each, case = wrong[0]
    if isinstance(each.truth, str):
        return f"Two things are wrong at once. Begin with the case {case.name}: {_question(each)}"
    first, second = (int(str(mistake.answer(**each.arguments))) - each.truth for mistake in both)
    return (
        f"Two things are wrong at once. In the case {case.name}, one of them alone would be off by "
        f"{first:+,}, and the other by {second:+,}. What is as large as each of these?"
    )


def _question(each: Try) -> str:
    value = each.outcome["value"]
    if isinstance(each.truth, str):
        return f"which of its numbers contradicts {value!r}?"
    difference = value - each.truth
    if difference > 0:
        return (
            f"your answer is {difference:,} too large there. What do you count that does not exist?"
        )
    return f"your answer is {-difference:,} too small there. What have you left out?"
