"""How far estimates are from what was measured: the arithmetic, and the tables."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.estimates.cases import DOCUMENT, RECORDING, Case


@dataclass(frozen=True)
class Comparison:
    """A case, and what the tools that claim to predict it said.

    Attributes:
        case: the measured number.
        estimates_bytes: by the tool's name.
    """

    case: Case
    estimates_bytes: Mapping[str, int]

    def error(self, tool: str) -> float:
        """Return the relative error of a tool's estimate: 0.25 means off by a quarter of the truth.

        An estimate that reads the same as a printed number, to its last digit, has no error.
        """
        estimate_bytes = self.estimates_bytes[tool]
        if self.case.is_met_by(estimate_bytes):
            return 0.0
        return abs(estimate_bytes - self.case.truth_bytes) / self.case.truth_bytes


@dataclass(frozen=True)
class Score:
    """What all cases of a tool come to.

    Attributes:
        documents: how many cases come from documents.
        recordings: how many from recordings of real GPUs.
        equal: how many are met, to the byte or the last printed digit.
        median: median of the relative errors; None without cases, as is what follows.
        worst: the largest.
        worst_case: the name of its case.
    """

    documents: int
    recordings: int
    equal: int
    median: float | None
    worst: float | None
    worst_case: str | None


def score(tool: str, comparisons: Iterable[Comparison]) -> Score:
    """Judge a tool by the cases that it gave an estimate for."""
    judged = [one for one in comparisons if tool in one.estimates_bytes]
    errors = [one.error(tool) for one in judged]
    kinds = [one.case.kind for one in judged]
    worst = max(errors, default=None)
    return Score(
        documents=kinds.count(DOCUMENT),
        recordings=kinds.count(RECORDING),
        equal=errors.count(0.0),
        median=statistics.median(errors) if errors else None,
        worst=worst,
        worst_case=judged[errors.index(worst)].case.name if worst else None,
    )


def percent(fraction: float | None) -> str:
    """0.2345 as '23 %', small ones with two significant digits, 0 as '0'; '-' if there is none."""
    if fraction is None:
        return "-"
    if fraction == 0:
        return "0"
    hundredths = fraction * 100
    if hundredths >= 10:
        return f"{hundredths:.0f} %"
    digits = 1
    while hundredths * 10**digits < 10:
        digits += 1
    return f"{hundredths:.{digits}f} %"


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown; a bar inside a cell is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines
    )


def folded(title: str, table: str) -> str:
    """Return a long table that a page shows when its reader opens it."""
    return f"<details><summary>{title}</summary>\n\n{table}\n\n</details>"


def summary(tool: str, comparisons: Sequence[Comparison]) -> str:
    """Say in two sentences how close a tool comes to all cases."""
    found = score(tool, comparisons)
    cases = found.documents + found.recordings
    return (
        f"Of {cases} numbers that were published or recorded on real GPUs, {found.equal} match to "
        f"the byte.\nThe median error is {percent(found.median)}, the largest "
        f"{percent(found.worst)}."
    )


def summary_table(tools: Mapping[str, tuple[str, str]], comparisons: Sequence[Comparison]) -> str:
    """One line for each tool.

    Args:
        tools: by name, what it predicts and what it leaves out.
        comparisons: all cases.
    """
    rows = []
    for tool, (predicts, leaves_out) in tools.items():
        found = score(tool, comparisons)
        worst = percent(found.worst) + (f" ({found.worst_case})" if found.worst_case else "")
        rows.append(
            (
                tool,
                predicts,
                f"{found.documents} + {found.recordings}",
                str(found.equal),
                percent(found.median),
                worst,
                leaves_out,
            )
        )
    header = (
        "tool",
        "predicts",
        "cases (published + recorded)",
        "equal",
        "median error",
        "worst error",
        "leaves out",
    )
    return markdown_table(header, rows)


def cases_table(tools: Iterable[str], comparisons: Iterable[Comparison]) -> str:
    """One line for each case: what was measured, and how far each tool is from it, with a sign."""
    names = list(tools)
    rows = [
        (
            one.case.name,
            one.case.quantity,
            one.case.source,
            f"{one.case.truth_bytes:,}",
            *(_signed(one, tool) for tool in names),
        )
        for one in comparisons
    ]
    return markdown_table(("case", "quantity", "source", "measured, B", *names), rows)


def _signed(one: Comparison, tool: str) -> str:
    """Return the error of an estimate with its sign; empty where the tool claims nothing."""
    if tool not in one.estimates_bytes:
        return ""
    error = one.error(tool)
    if error == 0:
        return "equal"
    sign = "+" if one.estimates_bytes[tool] > one.case.truth_bytes else "-"
    return sign + percent(error)
