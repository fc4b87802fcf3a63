"""Which published figures are cases, and that none is forgotten."""

from __future__ import annotations

from benchmarks.estimates.cases import CURVE, NO_CASE, curve_bytes, figure_of, published_cases
from benchmarks.estimates.programs import PROGRAMS, QUANTITIES
from vramlab_course.experiments.published import figures


def test_every_published_figure_is_a_case_or_has_a_reason_not_to_be() -> None:
    cases = {figure_of(case.name) for case in published_cases()}
    # What papers of part 6 publish is computed, or of programs that are not given.
    documents = {name for name, figure in figures().items() if figure.source[:3].isdigit()}
    assert documents <= cases | NO_CASE.keys() <= figures().keys()
    assert not cases & NO_CASE.keys()


def test_cases_have_a_program_a_quantity_and_a_name_of_their_own() -> None:
    cases = list(published_cases())
    assert {case.program for case in cases} <= PROGRAMS.keys()
    assert {case.quantity for case in cases} <= QUANTITIES.keys()
    assert len({case.name for case in cases}) == len(cases)
    assert all(case.truth_bytes > 0 for case in cases)


def test_the_published_curve_is_a_polynomial_in_mib() -> None:
    # 0.00123 · 1000² + 0.6039 · 1000 + 437.9 = 1230 + 603.9 + 437.9 = 2271.8 MiB
    assert curve_bytes(1000) == 2_382_154_956  # 2271.8 · 2**20 = 2,382,154,956.8, cut
    assert figures()[CURVE].unit == ("MiB/token^2", "MiB/token", "MiB")
