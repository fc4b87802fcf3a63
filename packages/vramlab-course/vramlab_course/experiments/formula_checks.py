"""What experiments make of predictions in closed form: how many numbers are equal, to the byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from vramlab_course.experiments import registry
from vramlab_course.experiments.outcome import Outcome


@dataclass(frozen=True)
class FormulaCheck:
    """The predicted numbers of an experiment beside the measured ones.

    Attributes:
        experiment: its name.
        lesson: that shows it first, such as '05'.
        question: what it answers.
        numbers: how many amounts of memory it predicts.
        equal: how many of them were measured so, to the byte.
        largest_predicted_bytes: the largest prediction.
        largest_measured_bytes: what was measured for it.
    """

    experiment: str
    lesson: str
    question: str
    numbers: int
    equal: int
    largest_predicted_bytes: int
    largest_measured_bytes: int


def check_formulas(tell: Callable[[str], None] = lambda words: None) -> list[FormulaCheck]:
    """Run every experiment as published, on virtual GPUs; leave out those that predict no memory.

    Args:
        tell: called with the experiment that runs.
    """
    checks = []
    for name in registry.names():
        tell(name)
        check = check_formula(name)
        if check is not None:
            checks.append(check)
    return checks


def check_formula(name: str) -> FormulaCheck | None:
    """Run one experiment as published; None if it predicts no memory."""
    experiment = registry.get(name)
    pairs = list(_pairs(registry.run_as_published(name)))
    if not pairs:
        return None
    predicted, measured = max(pairs)
    return FormulaCheck(
        name,
        experiment.lesson,
        experiment.question,
        len(pairs),
        sum(one == other for one, other in pairs),
        predicted,
        measured,
    )


def _pairs(outcome: Outcome) -> Iterator[tuple[int, int]]:
    """Predicted and measured bytes: of stages, and of findings that no stage has."""
    stages = [] if outcome.result is None else outcome.result.stages
    of_stages = [
        (expectation.predicted_bytes, stage.measured_bytes(expectation.quantity))
        for stage in stages
        for expectation in stage.expectations
        if expectation.predicted_bytes is not None
    ]
    if of_stages:
        yield from of_stages
        return
    for finding in outcome.findings:
        if finding.is_memory and finding.predicted is not None and finding.measured is not None:
            yield int(finding.predicted), int(finding.measured)
