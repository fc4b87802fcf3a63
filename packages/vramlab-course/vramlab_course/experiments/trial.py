"""Runs one experiment: its stages, what is expected of each, and the findings that come of it.

For example::

    trial = Trial("tiny")
    with trial.stage("tensor", expected("allocated", 512, "tiny-allocated")):
        x = torch.tensor([1.0]).to("cuda")
    return trial.outcome()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from vramlab.measure import Expectation, Quantity, StageMeasurement, Stages
from vramlab.measure.environment import gpu_environment, start_afresh
from vramlab.measure.stages import StageHandle
from vramlab_course.experiments.outcome import Difference, Finding, Number, Outcome
from vramlab_course.experiments.published import figure


@dataclass(frozen=True)
class Expected:
    """What is expected of one number of a stage. Made by `expected()`."""

    quantity: Quantity
    """Which number of the stage; see vramlab.measure.figures.QUANTITIES."""
    predicted_bytes: int | None
    """From a closed form."""
    figure: str | None
    """Id of the published figure, if there is one."""
    differences: tuple[Difference, ...]
    """Why it differs here from what was published."""
    note: str
    """Under which other conditions it was published."""

    @property
    def expectation(self) -> Expectation:
        """The same for vramlab.measure."""
        published = figure(self.figure).memory() if self.figure else None
        return Expectation(self.quantity, self.predicted_bytes, published)


def expected(
    quantity: Quantity,
    predicted_bytes: int | None = None,
    figure: str | None = None,
    *,
    differences: Iterable[Difference] = (),
    note: str = "",
) -> Expected:
    """Expect something of one number of a stage; the arguments are `Expected`'s fields.

    Differences of 0 are no differences, and left out.
    """
    kept = tuple(difference for difference in differences if difference.amount)
    return Expected(quantity, predicted_bytes, figure, kept, note)


@dataclass
class StageInTrial:
    """What `with trial.stage(...)` gives: the place for expectations that come late."""

    _handle: StageHandle
    _expected: list[Expected] = field(default_factory=list)

    def expect(self, *expectations: Expected) -> None:
        """Add expectations that could not be written down before the stage ran."""
        self._expected += expectations
        self._handle.expect(*(e.expectation for e in expectations))

    @property
    def measurement(self) -> StageMeasurement:
        """What was measured, once the stage has ended."""
        return self._handle.measurement


class Trial:
    """One run of an experiment on the attached GPU.

    Args:
        name: of the experiment.
        parameters: what it is run with, for the record.
    """

    def __init__(self, name: str, **parameters: Any) -> None:
        self.environment = gpu_environment()
        self._name = name
        self._parameters = parameters
        start_afresh()
        self._stages = Stages(name)
        self._parts: list[StageInTrial] = []
        self._findings: list[Finding] = []

    @contextmanager
    def stage(self, name: str, *expectations: Expected) -> Iterator[StageInTrial]:
        """Measure the body of the with statement as one stage."""
        with self._stages.stage(name) as handle:
            part = StageInTrial(handle)
            part.expect(*expectations)
            self._parts.append(part)
            yield part

    def find(
        self,
        figure_id: str,
        measured: Number | str | None,
        *,
        predicted: Number | str | None = None,
        index: int | None = None,
        part: str = "",
        differences: Iterable[Difference] = (),
        note: str = "",
        quoted: bool = False,
    ) -> None:
        """Hold a number that is no stage's against a published one.

        Args:
            figure_id: of the published figure.
            measured: bytes where the unit is one of memory; else in the published unit; a word
                where a word was published.
            predicted: the same, from a closed form.
            index: which number of the figure, where it has several.
            part: what that number is called.
            differences: why it differs here from what was published.
            note: why it is quoted, or under which other conditions it was published.
            quoted: it is quoted, not reproduced.
        """
        published = figure(figure_id)
        self._findings.append(
            Finding(
                figure=figure_id,
                published=published.printed(index),
                unit=published.unit_of(index),
                source=published.source,
                measured=measured,
                predicted=predicted,
                part=part,
                differences=tuple(d for d in differences if d.amount or isinstance(measured, str)),
                note=note,
                quoted=quoted,
            )
        )

    def record(self, *findings: Finding) -> None:
        """Add findings that were made elsewhere."""
        self._findings += findings

    def outcome(self) -> Outcome:
        """Return everything measured and found."""
        return Outcome(
            experiment=self._name,
            parameters=self._parameters,
            rules=self.environment.rules,
            result=self._stages.result(),
            findings=(*self._stage_findings(), *self._findings),
        )

    def _stage_findings(self) -> Iterator[Finding]:
        for part in self._parts:
            for expectation in part._expected:
                if expectation.figure is None:
                    continue
                published = figure(expectation.figure)
                yield Finding(
                    figure=published.id,
                    published=str(published.number()),
                    unit=published.unit_of(),
                    source=published.source,
                    measured=part.measurement.measured_bytes(expectation.quantity),
                    predicted=expectation.predicted_bytes,
                    differences=expectation.differences,
                    note=expectation.note,
                )
