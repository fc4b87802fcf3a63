"""The benchmark's arithmetic, on cases made by hand."""

from __future__ import annotations

from benchmarks.estimates.cases import DOCUMENT, RECORDING, Case
from benchmarks.estimates.scores import (
    Comparison,
    Score,
    score,
)
from vramlab.measure.figures import Published
from vramlab.units import KIB


def case(name: str, truth_bytes: int, kind: str = RECORDING, **more: object) -> Case:
    return Case(name, "program", "peak", truth_bytes, kind, "there", **more)  # type: ignore[arg-type]


FOUR = (
    Comparison(case("a", 1000), {"tool": 1000, "other": 900}),  # 0, and 100 / 1000
    Comparison(case("b", 1000), {"tool": 750}),  # 250 / 1000
    Comparison(case("c", 200, DOCUMENT), {"tool": 400}),  # 200 / 200
    Comparison(case("d", 800), {}),
)


def test_a_score_counts_only_what_a_tool_said_something_about() -> None:
    assert score("tool", FOUR) == Score(
        documents=1, recordings=2, equal=1, median=0.25, worst=1.0, worst_case="c"
    )  # the median of 0, 0.25, 1
    assert score("other", FOUR) == Score(0, 1, 0, 0.1, 0.1, "a")


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
