"""torch.cuda.memory_summary() as a document printed it, beside the same numbers measured."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from vramlab.measure import Table
from vramlab_course.experiments.outcome import FigureVerdict, Finding


def summary_table(findings: Sequence[Finding], caption: str) -> Table:
    """Lay out findings on a memory summary as the summary itself: a row for each metric and pool.

    A cell shows the published number, and below it the measured one where that is another.

    Args:
        findings: with parts such as 'Allocated memory, large_pool, Peak Usage', row by row.
        caption: of the table.
    """
    columns = tuple(dict.fromkeys(_place(finding)[2] for finding in findings))
    rows = [
        (_row_name(metric, pool), *(_cell(finding) for finding in of_row))
        for (metric, pool), of_row in groupby(findings, key=lambda finding: _place(finding)[:2])
    ]
    equal = sum(finding.verdict is FigureVerdict.EQUAL for finding in findings)
    return Table(
        caption=caption,
        header=("metric", *columns),
        rows=tuple(rows),
        notes=(f"{equal} of {len(findings)} numbers are equal.",),
    )


def _place(finding: Finding) -> tuple[str, str, str]:
    metric, pool, column = finding.part.split(", ")
    return metric, pool, column


def _row_name(metric: str, pool: str) -> str:
    return metric if pool == "all" else f"  from {pool.replace('_', ' ')}"


def _cell(finding: Finding) -> str:
    unit = " KB" if finding.unit.startswith("KiB") else ""  # memory_summary() calls 1024 B a KB
    published = f"{int(finding.published):,}{unit}"
    if finding.verdict is FigureVerdict.EQUAL:
        return published
    return f"{published}\nhere {finding.measured:,}{unit}"
