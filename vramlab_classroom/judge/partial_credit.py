"""Partial credit: points by the share of cases that an answer is right in, where a task says so.

    Predict(name="segment_bytes", points=3, partial_credit=True, ...)

It is right for predictions that have several rules, each of which decides some of the cases, so
that who misses one of them is right in the others. It is not right where an answer is one of a few
words or small numbers, which guessing finds, nor where a wrong idea happens to be right in most
cases. How much the named mistakes of a task earn tells: see `docs/grading.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from vramlab_classroom.judge.verdict import CaseResult

LEAST_SHARE = 0.5
"""Who is right in fewer cases has not solved part of the task, but has guessed."""


def partial_points(points: int, cases: Sequence[CaseResult]) -> float:
    """Give what an answer earns that is wrong in some cases: in steps of half a point.

    The share of the hidden cases counts, since the visible ones can be looked up; but not more than
    the share of all.
    """
    hidden = [case.right for case in cases if not case.visible]
    every = [case.right for case in cases]
    share = min(sum(right) / len(right) for right in (hidden or every, every))
    return math.floor(2 * points * share) / 2 if share >= LEAST_SHARE else 0
