"""What experiments make of predictions, as the page of all formulas tells it."""

from __future__ import annotations

from benchmarks.formulas import read_checks
from vramlab_course.experiments import registry
from vramlab_course.experiments.formula_checks import check_formula

QUICK = ("pages-and-blocks", "three-linear", "optimizer-step-peak", "fp16-linear")


def test_experiments_still_say_what_the_page_says() -> None:
    written = {check.experiment: check for check in read_checks()}
    now = {name: check_formula(name) for name in QUICK}
    assert now == {name: written[name] for name in QUICK}  # else: python -m benchmarks.formulas


def test_every_experiment_that_predicts_memory_is_on_the_page() -> None:
    written = {check.experiment for check in read_checks()}
    assert written < set(registry.names())
    assert len(written) > 40


def test_an_experiment_that_predicts_no_memory_has_no_check() -> None:
    assert check_formula("fp16-linear-memory-summary") is None
