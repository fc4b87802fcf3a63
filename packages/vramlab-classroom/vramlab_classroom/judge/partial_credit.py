"""Partial credit: an answer that is right in some of the cases earns some of the points.

A task has several rules, and each of its cases is about one of them. Every rule is worth the same
share of the points, however many cases are about it: a wrong rule costs its share, and a missed
border case costs little. By default, cases whose names and flags agree are about the same rule; a
task whose rules are ranges of numbers says which is which:

    Predict(name="segment_bytes", points=3, rule=_kind_of_segment, ...)

A case that needs several rules at once is about none (`rule` returns None): a mistake in one would
hide that the others are known. It has to be right for all of the points.

Where the answer is one of a few words, each word is a rule. Each case in which the word
is missing or wrong lowers its share, so answering the same word in every case earns nothing.

To check that the rules of a task are well chosen, look at what its named mistakes earn: see
`docs/grading.md`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from fractions import Fraction

from vramlab_classroom.judge.task import Config, Diagnose, Predict, Task
from vramlab_classroom.judge.verdict import CaseResult

LEAST_SHARE = Fraction(1, 2)
"""Below this share, an answer is a guess rather than a part of the solution."""


def partial_points(task: Task, cases: Sequence[CaseResult], *, in_words: bool) -> float:
    """Return the points of an answer, in steps of half a point.

    The share of the hidden cases counts, since the visible ones can be looked up; but never more
    than the share of all cases. An answer that is always the same earns nothing.

    Args:
        task: that was answered.
        cases: all of its cases.
        in_words: whether the answers are words.
    """
    hidden = [case for case in cases if not case.visible]
    share = min(_share(task, hidden or cases, in_words), _share(task, cases, in_words))
    if all(case.right for case in cases):
        return task.points
    if share < LEAST_SHARE or len({case.answered for case in cases}) == 1:
        return 0
    return min(math.floor(2 * task.points * share), 2 * task.points - 1) / 2


def _share(task: Task, cases: Sequence[CaseResult], in_words: bool) -> Fraction:
    if in_words and _rule(task) is None:
        shares = [_share_of_word(word, cases) for word in {case.truth for case in cases}]
    else:
        by_rule: dict[Hashable, list[bool]] = defaultdict(list)
        for case in cases:
            by_rule[rule_of(task, case.config)].append(case.right)
        if len(by_rule) > 1:
            by_rule.pop(None, None)
        shares = [Fraction(sum(right), len(right)) for right in by_rule.values()]
    return sum(shares, Fraction()) / len(shares)


def _share_of_word(word: str, cases: Sequence[CaseResult]) -> Fraction:
    """Of the cases in which the word is right, or was answered: the fraction that is right."""
    answers = (word, repr(word))
    about = [case.right for case in cases if word == case.truth or case.answered in answers]
    return Fraction(sum(about), len(about))


def _rule(task: Task) -> Callable[..., Hashable] | None:
    return task.rule if isinstance(task, Predict | Diagnose) else None


def rule_of(task: Task, case: Config) -> Hashable:
    """Return the rule that a case is about: what the task says, or the case's names and flags."""
    rule = _rule(task)
    if rule is not None:
        return rule(**case)
    return frozenset((key, value) for key, value in case.items() if isinstance(value, str | bool))
