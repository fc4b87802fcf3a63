"""The table of published measurements in docs/accuracy.md."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from statistics import median

from benchmarks.measurements.rows import FOLDER, SOURCES, Row, read_results, rows_of
from vramlab import catalogue

_NEAR = 0.001
_FAR = 0.03
"""Rows that are further off have a reason."""

REASONS = {
    "albert_base": "ALBERT: every row is about 2 MiB above what its program allocates; not known",
    "bert_base mode=inference": "BERT's inference: at both lengths, rows are 14.7 MB and 15.8 MB "
    "for each sequence above what the program allocates; not known",
    "opt_350m mode=training batch=4 length=2048 attention=sdpa": "OPT: repeats the row above",
    "opt_350m mode=training batch=8 length=2048 attention=sdpa": "OPT: repeats the row above",
    "method=prefixtuning": "PEFT's prefix tuning: about 5.3 MB for each virtual token above what "
    "its program allocates; not known",
    "santacoder batch=8": "SantaCoder with a batch of 8: about one copy of the logits more; not "
    "known",
}
"""Why rows are far off, by a part of their names."""


FITTED = ("peft",)
"""Sources of which one condition is chosen by one of their figures: they are counted apart."""

_EXACT = tuple(source for source in SOURCES if source not in FITTED)


def _found(sources: Iterable[str] = SOURCES) -> dict[tuple[str, str], list[tuple[Row, int]]]:
    """Return rows with the bytes that were found, by source and GPU."""
    results = read_results()
    groups = defaultdict(list)
    for source in sources:
        for row in rows_of(source):
            if (found := results.get(source, {}).get(row.name)) is not None:
                gpu = catalogue.find(row.gpu).name
                groups[source, gpu].append((row, found["found_bytes"]))
    return groups


def markdown() -> str:
    """Make the table: each source and GPU with its errors."""
    groups = _found(_EXACT)
    lines = [
        "| source | GPU | figures | equal | within 0.1 % | median error | worst error |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    everything: list[tuple[Row, int]] = []
    for (source, gpu), found in groups.items():
        everything += found
        lines.append(f"| {source} | {gpu} | {_errors(found)} |")
    lines.append(f"| **all** | {len({gpu for _, gpu in groups})} GPUs | {_errors(everything)} |")
    for (source, gpu), found in _found(FITTED).items():
        everything += found
        lines.append(
            f"| {source}, not in the sum: one condition is fitted | {gpu} | {_errors(found)} |"
        )
    far = Counter(_reason(row) for row, size in everything if _is_far(row, size))
    reasons = [f"- {why} ({count} figure{'s' * (count > 1)})." for why, count in far.items()]
    about = [f"- **{source}**: {_about(source)}" for source in SOURCES]
    return "\n".join([*lines, "", *about, "", f"Errors above {_FAR:.0%}, and why:", "", *reasons])


def _errors(found: Iterable[tuple[Row, int]]) -> str:
    errors = [(row.error(size), row) for row, size in found]
    sizes = sorted(abs(error) for error, _ in errors)
    worst, row = max(errors, key=lambda each: abs(each[0]))
    at = f" (`{row.program} {row.arguments}`)" if worst else ""
    return (
        f"{len(sizes)} | {sizes.count(0.0)} | {sum(size <= _NEAR for size in sizes)} | "
        f"{median(sizes):.2%} | {worst:+.2%}{at}"
    )


def _is_far(row: Row, size_bytes: int) -> bool:
    return abs(row.error(size_bytes)) > _FAR


def _reason(row: Row) -> str | None:
    return next((why for part, why in REASONS.items() if part in row.name), None)


def summary() -> str:
    """Say in one sentence how many figures are equal."""
    groups = _found(_EXACT)
    found = [each for group in groups.values() for each in group]
    errors = [abs(row.error(size)) for row, size in found]
    return (
        f"Of {len(found)} figures that others published for {len({gpu for _, gpu in groups})} "
        f"GPUs, {errors.count(0.0)} are equal to the last printed digit, and "
        f"{sum(error <= _NEAR for error in errors)} are within {_NEAR:.1%}."
    )


def unexplained() -> list[str]:
    """Return the rows that are far off without a reason."""
    return [
        row.name
        for found in _found().values()
        for row, size in found
        if _is_far(row, size) and _reason(row) is None
    ]


def _about(source: str) -> str:
    text = (FOLDER / f"{source}.csv").read_text(encoding="utf-8")
    return " ".join(line[2:] for line in text.splitlines() if line.startswith("# "))
