"""Verdicts: what counts as equal, as explained, and as neither."""

from __future__ import annotations

from typing import Any

import pytest

from vramlab.measure import Result
from vramlab.units import MIB
from vramlab_course.experiments import Difference, FigureVerdict, Finding, Outcome
from vramlab_course.experiments.outcome import findings_table


def finding(**changes: Any) -> Finding:
    plain: dict[str, Any] = {
        "figure": "a-figure",
        "published": "40.0",
        "unit": "MiB",
        "source": "001",
        "measured": 40 * MIB,
    }
    return Finding(**{**plain, **changes})


def test_equal_is_equal_in_print() -> None:
    assert finding().verdict is FigureVerdict.EQUAL
    assert finding(measured=40 * MIB + 50_000).verdict is FigureVerdict.EQUAL  # 40.0477: 40.0
    assert finding(measured=40 * MIB + 60_000).verdict is FigureVerdict.UNEXPLAINED  # 40.0572: 40.1


def test_explained_is_explained_to_the_last_digit() -> None:
    more = finding(measured=48 * MIB, differences=(Difference(8 * MIB, "a workspace"),))
    assert more.verdict is FigureVerdict.EXPLAINED
    assert more.difference == 8 * MIB
    almost = finding(measured=48 * MIB, differences=(Difference(7 * MIB, "a workspace"),))
    assert almost.verdict is FigureVerdict.UNEXPLAINED
    parts = (Difference(9 * MIB, "more"), Difference(-MIB, "less"))
    assert finding(measured=48 * MIB, differences=parts).verdict is FigureVerdict.EXPLAINED


def test_quoted_and_other_conditions() -> None:
    assert finding(measured=None).verdict is FigureVerdict.QUOTED
    assert finding(quoted=True).verdict is FigureVerdict.QUOTED
    elsewhere = finding(measured=MIB, note="published for another PyTorch")
    assert elsewhere.verdict is FigureVerdict.OTHER_CONDITIONS
    why = (Difference(0, "a mask is quadratic"),)
    explained = finding(published="linear", unit="shape", measured="quadratic", differences=why)
    assert explained.verdict is FigureVerdict.EXPLAINED
    assert findings_table((explained,), "words").notes == ("a-figure: a mask is quadratic",)


def test_an_outcome_finds_by_name_and_says_what_it_has() -> None:
    nothing_measured = Result("x", "a GPU", virtual=True, torch_version="2.13", stages=())
    outcome = Outcome("x", {}, "2.13", nothing_measured, (finding(part="a"),))
    assert outcome.finding("a-figure", "a").measured == 40 * MIB
    with pytest.raises(KeyError, match="'x' found nothing on 'b' ''; it has: a-figure a"):
        outcome.finding("b")
