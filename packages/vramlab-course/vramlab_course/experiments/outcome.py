"""What an experiment came to: its stages, and a finding for each published figure. Knows no torch.

A finding compares one published number with the prediction and the measurement, with a verdict.
Where the two differ, the difference is data as well: how much of it has which reason. A difference
that the reasons do not account for, to the last printed digit, is unexplained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from vramlab.measure import Result, StageMeasurement, Table
from vramlab.measure.figures import UNIT_BYTES, Published
from vramlab.units import KIB, MIB
from vramlab.words import say, say_name

FORMAT = 1
"""Version of the JSON form; raised when a field changes its meaning."""

Number = int | float


class FigureVerdict(Enum):
    """How a measured number stands to the published one."""

    EQUAL = "equal"
    """They read the same, to the last printed digit."""
    EXPLAINED = "explained"
    """They differ, and the reasons account for all of the difference."""
    QUOTED = "quoted"
    """It depends on hardware or drivers of the past, or was not measured here: quoted only."""
    OTHER_CONDITIONS = "other conditions"
    """It was measured here under conditions for which it was not published."""
    UNEXPLAINED = "unexplained"
    """They differ, for an unknown reason."""


@dataclass(frozen=True)
class Difference:
    """A part of the difference between measured and published, and its reason."""

    amount: Number
    """Measured minus published: in bytes, or in the published unit where that is not of memory. 0
    between words, which have no difference but reasons for one."""
    why: str
    """The reason, in one sentence."""
    source: str = ""
    """Where the reason can be checked: a file, a paper, an issue."""


@dataclass(frozen=True)
class Finding:
    """One published number, and what came of it."""

    figure: str
    """Id of the published figure."""
    published: str
    """The number, with the digits that were printed; or a word, such as 'linear'."""
    unit: str
    """Its unit: B, KiB, MiB, GiB, KB, MB, GB, or a word such as 'fraction' or 'parameters'."""
    source: str
    """Document and section."""
    measured: Number | str | None
    """Bytes where the unit is one of memory, else in the published unit; a word where a word was
    published. None: not measured."""
    predicted: Number | str | None = None
    """From a closed form, in the same unit as `measured`."""
    part: str = ""
    """Which number of the figure, where it has several."""
    differences: tuple[Difference, ...] = ()
    """The reasons for the difference, if there is one."""
    note: str = ""
    """Why it is quoted only, or under which other conditions it was published."""
    quoted: bool = False
    """Whether the number is quoted, not reproduced."""

    @property
    def verdict(self) -> FigureVerdict:
        """How the measured number stands to the published one."""
        if self.quoted or self.measured is None:
            return FigureVerdict.QUOTED
        if isinstance(self.measured, str):
            return self._verdict_on_word()
        if self._reads_as_published(self.measured):
            return FigureVerdict.EQUAL
        accounted = sum(difference.amount for difference in self.differences)
        if self.differences and self._reads_as_published(self.measured - accounted):
            return FigureVerdict.EXPLAINED
        return FigureVerdict.OTHER_CONDITIONS if self.note else FigureVerdict.UNEXPLAINED

    def _verdict_on_word(self) -> FigureVerdict:
        """Compare a word with the published one; a reason or note has to explain a difference."""
        if self.measured == self.published:
            return FigureVerdict.EQUAL
        if self.differences:
            return FigureVerdict.EXPLAINED
        return FigureVerdict.OTHER_CONDITIONS if self.note else FigureVerdict.UNEXPLAINED

    @property
    def difference(self) -> Number | None:
        """Measured minus published; None where nothing was measured, or a word."""
        if self.measured is None or isinstance(self.measured, str):
            return None
        if self.is_memory:
            return int(self.measured) - self._memory.nearest_bytes
        return float(Decimal(str(self.measured)) - Decimal(self.published))

    @property
    def is_memory(self) -> bool:
        """Whether it is an amount of memory; measured and predicted are then in bytes."""
        return self.unit in UNIT_BYTES

    @property
    def _memory(self) -> Published:
        return Published(float(self.published), self.unit, self.source)

    def _reads_as_published(self, value: Number) -> bool:
        """Whether a value, printed with as many digits, reads the same."""
        printed = Decimal(self.published)
        exact = Decimal(str(value)) / UNIT_BYTES.get(self.unit, 1)
        exponent = printed.as_tuple().exponent
        assert isinstance(exponent, int)  # a printed number is finite
        return exact.quantize(Decimal(1).scaleb(exponent)) == printed


@dataclass(frozen=True)
class Outcome:
    """Everything that one run of an experiment measured and found, on one GPU."""

    experiment: str
    """Its name in the registry."""
    parameters: Mapping[str, Any]
    """What it was run with."""
    rules: str
    """The PyTorch whose rules held: the installed one, or another that a virtual GPU stood for."""
    result: Result
    """The stages, in the order in which they ran."""
    findings: tuple[Finding, ...]
    """One for each published number that the experiment reproduces."""

    def __getitem__(self, stage: str) -> StageMeasurement:
        """Return the stage of that name, as `result[stage]`."""
        return self.result[stage]

    def finding(self, figure: str, part: str = "") -> Finding:
        """Return the finding on a published figure; KeyError names the figures with one."""
        for finding in self.findings:
            if finding.figure == figure and finding.part == part:
                return finding
        there = ", ".join(f"{f.figure} {f.part}".strip() for f in self.findings)
        raise KeyError(f"{self.experiment!r} found nothing on {figure!r} {part!r}; it has: {there}")

    def findings_on(self, figure: str) -> tuple[Finding, ...]:
        """Return the findings on all parts of a published figure."""
        return tuple(finding for finding in self.findings if finding.figure == figure)

    def findings_table(self) -> Table:
        """Show published, predicted and measured side by side, with verdict and reasons."""
        caption = f"{self.experiment}: the published figures, by the rules of PyTorch {self.rules}"
        return findings_table(self.findings, caption)

    def to_dict(self) -> dict[str, Any]:
        """Return plain dicts, lists, strings and numbers, ready for json.dump."""
        return {
            "format": FORMAT,
            "experiment": self.experiment,
            "parameters": dict(self.parameters),
            "rules": self.rules,
            "result": self.result.to_dict(),
            "findings": [asdict(finding) for finding in self.findings],
        }

    def to_json(self) -> str:
        """Return the outcome as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Outcome:
        """Read what `to_dict` wrote; ValueError if it has another format."""
        if data.get("format") != FORMAT:
            raise ValueError(
                f"an outcome of format {data.get('format')!r} cannot be read; this version of "
                f"vramlab reads format {FORMAT}: run the experiment again"
            )
        return cls(
            experiment=data["experiment"],
            parameters=data["parameters"],
            rules=data["rules"],
            result=Result.from_dict(data["result"]),
            findings=tuple(_finding_from_dict(finding) for finding in data["findings"]),
        )

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """Read what `to_json` wrote."""
        return cls.from_dict(json.loads(text))

    def __str__(self) -> str:
        tables = [self.result.table()] if self.result.stages else []
        if self.findings:
            tables.append(self.findings_table())
        return "\n\n".join(map(str, tables))

    def _repr_html_(self) -> str:
        tables = [self.result.table()] if self.result.stages else []
        if self.findings:
            tables.append(self.findings_table())
        return "\n".join(table._repr_html_() for table in tables)


def findings_table(findings: tuple[Finding, ...], caption: str) -> Table:
    """Show findings as rows; the reasons for differences stand below."""
    rows = tuple(
        (
            f"{finding.figure}\n{finding.part}" if finding.part else finding.figure,
            f"{finding.published} {finding.unit}".strip(),
            format_number(finding.predicted, finding),
            format_number(finding.measured, finding),
            format_difference(finding),
            finding.verdict.value,
        )
        for finding in findings
    )
    header = ("figure", "published", "predicted", "measured", "difference", "verdict")
    remarks = dict.fromkeys(line for finding in findings for line in reasons(finding))
    return Table(caption, header, rows, tuple(remarks))


def reasons(finding: Finding) -> tuple[str, ...]:
    """Return what there is to say about a finding, a line each."""
    name = f"{finding.figure} {say_name(finding.part)}".strip()
    lines = [
        ": ".join((name, *_amount_in_words(difference, finding), say(difference.why)))
        + (f" ({difference.source})" if difference.source else "")
        for difference in (
            finding.differences if finding.verdict is FigureVerdict.EXPLAINED else ()
        )
    ]
    if finding.note and finding.verdict is FigureVerdict.QUOTED:
        lines.append(f"{name}: {say(finding.note)}")
    elif finding.note and finding.verdict is FigureVerdict.OTHER_CONDITIONS:
        lines.append(f"{finding.figure}: {say(finding.note)}")  # the same for all its parts
    return tuple(lines)


def format_number(value: Number | str | None, finding: Finding) -> str:
    """Return a predicted or measured number: memory in MiB and bytes, anything else in its unit."""
    if value is None or isinstance(value, str):
        return value or ""
    if finding.is_memory and value < KIB:
        return f"{value:,} B"
    if finding.is_memory:
        return f"{value / MIB:,.4f} MiB\n{value:,} B"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.6g}"


def format_amount(amount: Number, finding: Finding) -> str:
    """Return a difference with its sign and unit."""
    unit = "B" if finding.is_memory else finding.unit
    if float(amount).is_integer():  # a count, such as of parameters
        return f"{int(amount):+,} {unit}"
    return f"{amount:+,.6g} {unit}"


def _amount_in_words(difference: Difference, finding: Finding) -> tuple[str, ...]:
    """Return the amount with its unit; between words there is none."""
    if isinstance(finding.measured, str):
        return ()
    return (format_amount(difference.amount, finding),)


def format_difference(finding: Finding) -> str:
    """Subtract published from measured: 'equal', 'same digits', or the signed amount."""
    if isinstance(finding.measured, str):
        return "equal" if finding.verdict is FigureVerdict.EQUAL else "another"
    difference = finding.difference
    if difference is None:
        return ""
    if difference == 0:
        return "equal"
    if finding.verdict is FigureVerdict.EQUAL:
        return "same digits"
    return format_amount(difference, finding)


def _finding_from_dict(data: dict[str, Any]) -> Finding:
    plain = {**data, "differences": tuple(Difference(**d) for d in data["differences"])}
    return Finding(**plain)
