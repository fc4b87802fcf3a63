"""All published figures at a glance: every experiment run as published, a line for every number.

`vramlab figures` prints it, and the README shows it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal

from vramlab.measure import Table
from vramlab_course.experiments import registry
from vramlab_course.experiments.outcome import (
    FigureVerdict,
    Finding,
    format_difference,
    format_number,
    reasons,
)
from vramlab_course.experiments.published import Figure, figures

_MOST_PARTS = 8
"""A figure of more numbers than this, such as a whole memory summary, gets one line for all."""

_HEADER = ("figure", "document", "published", "predicted", "measured", "difference", "verdict")
_NOT_YET = "not measured yet"


@dataclass(frozen=True)
class SurveyLine:
    """A published number, or all of a figure that has many, with what came of it."""

    figure: str
    """Id of the published figure, and the part where it has several."""
    document: str
    """Document and section."""
    published: str
    """As printed, with its unit."""
    predicted: str
    """From a closed form."""
    measured: str
    """On the virtual GPU."""
    difference: str
    """Measured minus published."""
    verdict: str
    """A `FigureVerdict`'s value, or that no experiment measures it yet."""
    remarks: tuple[str, ...] = ()
    """Reasons for the difference, and notes."""

    @property
    def cells(self) -> tuple[str, ...]:
        """The line as cells under the table's header."""
        return (
            self.figure,
            self.document,
            self.published,
            self.predicted,
            self.measured,
            self.difference,
            self.verdict,
        )


@dataclass(frozen=True)
class Survey:
    """What became of the published figures."""

    lines: tuple[SurveyLine, ...]
    """In the documents' order."""
    unexplained: tuple[Finding, ...]
    """Numbers that differ for no known reason; empty if all is well."""

    def table(self) -> Table:
        """Show for a terminal or a notebook."""
        remarks = tuple(remark for line in self.lines for remark in line.remarks)
        return Table(
            "The documents' figures, each under the conditions it was published under",
            _HEADER,
            tuple(line.cells for line in self.lines),
            (*remarks, self.summary()),
        )

    def markdown(self) -> str:
        """Show for a README: a table, and the remarks as a list below it."""
        rows = [_HEADER, ("---",) * len(_HEADER), *(line.cells for line in self.lines)]
        table = ["| " + " | ".join(map(_markdown_cell, row)) + " |" for row in rows]
        remarks = [f"- {remark}" for line in self.lines for remark in line.remarks]
        return "\n".join([*table, "", *remarks, "", self.summary()])

    def summary(self) -> str:
        """Return how many lines have which verdict."""
        counts = Counter(line.verdict for line in self.lines)
        return ", ".join(f"{count} {verdict}" for verdict, count in counts.items())


def survey(
    names: Sequence[str] | None = None, *, tell: Callable[[str], object] | None = None
) -> Survey:
    """Run experiments as published, and gather what they found.

    Args:
        names: of the experiments; all by default, and then figures without one are listed too.
        tell: called with the progress before each experiment, such as "3 of 20, three-linear".
    """
    found: dict[str, list[Finding]] = {}
    chosen = map(registry.get, registry.names() if names is None else names)
    reproducing = [experiment for experiment in chosen if experiment.figures]
    for number, experiment in enumerate(reproducing, start=1):
        if tell is not None:
            tell(f"{number} of {len(reproducing)}, {experiment.name}")
        outcome = registry.run_as_published(experiment.name)
        for figure_id in experiment.figures:
            found.setdefault(figure_id, []).extend(outcome.findings_on(figure_id))
    lines = [
        line
        for figure in figures().values()
        if names is None or figure.id in found
        for line in _lines(figure, found.get(figure.id, []))
    ]
    findings = (finding for of in found.values() for finding in of)
    unexplained = tuple(f for f in findings if f.verdict is FigureVerdict.UNEXPLAINED)
    return Survey(tuple(lines), unexplained)


def _lines(figure: Figure, found: Sequence[Finding]) -> Iterator[SurveyLine]:
    if not found:
        yield SurveyLine(figure.id, figure.source, _as_printed(figure), "", "", "", _NOT_YET)
    elif len(found) > _MOST_PARTS:
        yield _line_of_many(figure, found)
    else:
        yield from map(_line, found)


def _line(finding: Finding) -> SurveyLine:
    return SurveyLine(
        f"{finding.figure}: {finding.part}" if finding.part else finding.figure,
        finding.source,
        f"{finding.published} {finding.unit}",
        format_number(finding.predicted, finding),
        format_number(finding.measured, finding),
        format_difference(finding),
        finding.verdict.value,
        reasons(finding),
    )


def _line_of_many(figure: Figure, found: Sequence[Finding]) -> SurveyLine:
    """One line for a figure of many numbers, with the worst of their verdicts."""
    worst = max(found, key=lambda finding: list(FigureVerdict).index(finding.verdict))
    equal = sum(finding.verdict is FigureVerdict.EQUAL for finding in found)
    return SurveyLine(
        figure.id,
        figure.source,
        f"{len(found)} numbers",
        "",
        f"{equal} equal",
        "equal" if equal == len(found) else f"{len(found) - equal} differ",
        worst.verdict.value,
        tuple(_first_of_each(remark for finding in found for remark in reasons(finding))),
    )


def _first_of_each(remarks: Iterable[str]) -> Iterator[str]:
    yield from dict.fromkeys(remarks)


def _as_printed(figure: Figure) -> str:
    """Return a figure that may be a number, several, or a word, with its unit."""
    values = figure.value if isinstance(figure.value, list) else [figure.value]
    if any(isinstance(value, dict) for value in values):
        return "a table"
    units = [figure.unit] * len(values) if isinstance(figure.unit, str) else list(figure.unit)
    return "\n".join(
        f"{value:f} {unit}" if isinstance(value, Decimal) else f"{value} {unit}"
        for value, unit in zip(values, units, strict=True)
    )


def _markdown_cell(cell: str) -> str:
    return cell.replace("|", "\\|").replace("\n", "<br>")
