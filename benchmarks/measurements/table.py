"""The table of published measurements in docs/accuracy.md."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median

from benchmarks.measurements.rows import FOLDER, SOURCES, Row, read_results, rows_of
from vramlab import catalogue

_FAR = 0.03
"""Rows that are further off have a reason."""

REASONS = {
    ("transformers", "albert_base"): "the page does not say which head the model has",
    ("transformers", "bert_base"): "inference alone, whose head the page does not name",
    ("transformers", "vivit_base"): "half of what float32 needs, as if they were of float16",
    ("transformers", "opt_350m"): "the page repeats the figures of the row above",
    ("fms_acceleration", "santacoder"): "unknown, at a batch of 8 alone",
}
"""Why rows of a program are far off, by source and program."""


def _found() -> dict[tuple[str, str], list[tuple[Row, int]]]:
    """Return rows with the bytes that were found, by source and GPU."""
    results = read_results()
    groups = defaultdict(list)
    for source in SOURCES:
        for row in rows_of(source):
            if (found := results.get(source, {}).get(row.name)) is not None:
                gpu = catalogue.find(row.gpu).name
                groups[source, gpu].append((row, found["found_bytes"]))
    return groups


def markdown() -> str:
    """Make the table: each source and GPU with its errors."""
    groups = _found()
    lines = [
        "| source | GPU | figures | equal | within 0.1 % | median error | worst error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    everything: list[tuple[Row, int]] = []
    for (source, gpu), found in groups.items():
        everything += found
        lines.append(f"| {source} | {gpu} | {_errors(found)} |")
    lines.append(f"| **all** | {len({gpu for _, gpu in groups})} GPUs | {_errors(everything)} |")
    reasons = [
        f"- {source}, `{program}`: {count} of the figures; {why}."
        for (source, program), why in REASONS.items()
        if (count := _far(everything, source, program))
    ]
    about = [f"- **{source}**: {_about(source)}" for source in SOURCES]
    return "\n".join(
        [*lines, "", *about, "", f"Further off than {_FAR:.0%}, and why:", "", *reasons]
    )


def _errors(found: Iterable[tuple[Row, int]]) -> str:
    errors = [(row.error(size), row) for row, size in found]
    sizes = sorted(abs(error) for error, _ in errors)
    worst, row = max(errors, key=lambda each: abs(each[0]))
    at = f" (`{row.program} {row.arguments}`)" if worst else ""
    return (
        f"{len(sizes)} | {sizes.count(0.0)} | {sum(size <= 1e-3 for size in sizes)} | "
        f"{median(sizes):.2%} | {worst:+.2%}{at}"
    )


def _far(found: Iterable[tuple[Row, int]], source: str, program: str) -> int:
    return sum(
        abs(row.error(size)) > _FAR
        for row, size in found
        if (row.source, row.program) == (source, program)
    )


def unexplained() -> list[str]:
    """Return the rows that are far off without a reason."""
    return [
        row.name
        for found in _found().values()
        for row, size in found
        if abs(row.error(size)) > _FAR and (row.source, row.program) not in REASONS
    ]


def _about(source: str) -> str:
    text = (FOLDER / f"{source}.csv").read_text(encoding="utf-8")
    return " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
