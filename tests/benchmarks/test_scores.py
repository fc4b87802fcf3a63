"""The benchmark's arithmetic, on cases made by hand."""

from __future__ import annotations

import pytest

from benchmarks.estimates.cases import DOCUMENT, RECORDING, Case
from benchmarks.estimates.scores import (
    Comparison,
    Score,
    cases_table,
    percent,
    score,
    summary_table,
)
from vramlab.measure.figures import Published
from vramlab.units import KIB, MIB


def case(name: str, truth_bytes: int, kind: str = RECORDING, **more: object) -> Case:
    return Case(name, "program", "peak", truth_bytes, kind, "there", **more)  # type: ignore[arg-type]


FOUR = (
    Comparison(case("a", 1000), {"tool": 1000, "other": 900}),  # 0, and 100 / 1000
    Comparison(case("b", 1000), {"tool": 750}),  # 250 / 1000
    Comparison(case("c", 200, DOCUMENT), {"tool": 400}),  # 200 / 200
    Comparison(case("d", 800), {}),
)


def test_the_error_is_relative_to_what_was_measured() -> None:
    assert FOUR[0].error("tool") == 0
    assert FOUR[1].error("tool") == 0.25
    assert FOUR[2].error("tool") == 1.0


def test_a_score_counts_only_what_a_tool_said_something_about() -> None:
    assert score("tool", FOUR) == Score(
        documents=1, recordings=2, equal=1, median=0.25, worst=1.0, worst_case="c"
    )  # the median of 0, 0.25, 1
    assert score("other", FOUR) == Score(0, 1, 0, 0.1, 0.1, "a")


def test_the_median_of_an_even_number_is_in_the_middle() -> None:
    assert score("tool", FOUR[:2]).median == 0.125  # (0 + 0.25) / 2


def test_a_tool_without_cases_has_no_errors() -> None:
    assert score("silent", FOUR) == Score(0, 0, 0, None, None, None)


def test_of_a_tool_that_is_always_right_no_case_is_the_worst() -> None:
    assert score("tool", FOUR[:1]) == Score(0, 1, 1, 0.0, 0.0, None)


def test_a_printed_figure_is_met_by_all_that_reads_the_same() -> None:
    printed = Published(418.7295, "MiB", "there")
    one = case("printed", printed.nearest_bytes, published=printed)
    # 418.7295 MiB is 439,069,704 B; 418.7294921875 MiB, read with 4 digits, is the same.
    assert one.is_met_by(439_069_696)
    assert Comparison(one, {"tool": 439_069_696}).error("tool") == 0
    assert not one.is_met_by(439_069_696 - 512)  # 418.7290
    assert Comparison(one, {"tool": 439_069_696 - 512}).error("tool") == 520 / 439_069_704


def test_a_figure_cut_to_whole_kib_is_met_up_to_the_next() -> None:
    one = case("cut", 3 * KIB, whole_kib=True)
    assert one.is_met_by(3 * KIB)
    assert one.is_met_by(4 * KIB - 1)
    assert not one.is_met_by(4 * KIB)
    assert not one.is_met_by(3 * KIB - 1)


def test_a_recording_is_met_by_its_bytes_only() -> None:
    assert case("recorded", MIB).is_met_by(MIB)
    assert not case("recorded", MIB).is_met_by(MIB + 1)


@pytest.mark.parametrize(
    ("fraction", "written"),
    [
        (None, "-"),
        (0.0, "0"),
        (2.5, "250 %"),
        (0.5, "50 %"),
        (0.1, "10 %"),
        (0.0712, "7.1 %"),
        (0.0071, "0.71 %"),
        (0.000022, "0.0022 %"),
    ],
)
def test_percentages_have_two_digits(fraction: float | None, written: str) -> None:
    assert percent(fraction) == written


def test_the_summary_has_a_line_for_each_tool() -> None:
    tools = {"tool": ("peaks", "a | b"), "silent": ("nothing", "all")}
    assert summary_table(tools, FOUR).splitlines()[2:] == [
        r"| tool | peaks | 1 + 2 | 1 | 25 % | 100 % (c) | a \| b |",
        "| silent | nothing | 0 + 0 | 0 | - | - | all |",
    ]


def test_the_cases_show_the_sign_of_each_error() -> None:
    assert cases_table(["tool", "other"], FOUR).splitlines()[2:] == [
        "| a | peak | there | 1,000 | equal | -10 % |",
        "| b | peak | there | 1,000 | -25 % |  |",
        "| c | peak | there | 200 | +100 % |  |",
        "| d | peak | there | 800 |  |  |",
    ]
