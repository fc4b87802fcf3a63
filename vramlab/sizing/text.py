"""Results of runs on several GPUs, or with several values of an option, as tables and as data."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from vramlab.report.showing.verdict import MOST_REASONS
from vramlab.report.summary import Fit
from vramlab.sizing.gpus import GPUOutcome, smallest_that_fits
from vramlab.sizing.largest import Search
from vramlab.sizing.runs import RunOutcome
from vramlab.table import Table
from vramlab.units import format_bytes

_BAR = 30
"""Width in characters of the bar of a GPU's whole memory."""


def gpus_table(command: str, tried: Sequence[GPUOutcome], missing: int = 0) -> Table:
    """Return a table of GPUs on which a program fits, with the smallest one named.

    Args:
        command: Command line of the program.
        tried: Results by GPU.
        missing: Number of GPUs that were not tried because of Ctrl-C.
    """
    rows = []
    for each in tried:
        found = each.outcome
        rows.append(
            (
                each.gpu.name,
                format_bytes(each.gpu.total_bytes),
                _needed(found),
                f"{found.needed_bytes / each.gpu.total_bytes:.0%}" if found.fits else "",
                _word(found),
                f"run on {each.same_as}" if each.same_as else "own run",
            )
        )
    smallest = smallest_that_fits(tried)
    if smallest is None:
        verdict = "The program fits on none of these GPUs."
        if missing:
            verdict = f"Interrupted: GPUs not tried: {missing}."
    elif missing:
        rest = "1 smaller GPU was" if missing == 1 else f"{missing} smaller GPUs were"
        verdict = f"The program fits on {smallest.gpu.name}; {rest} not tried."
    else:
        size = format_bytes(smallest.gpu.total_bytes)
        fits = "fits" if smallest.outcome.outcome.is_sure else "may fit"
        verdict = f"Smallest GPU on which the program {fits}: {smallest.gpu.name}, {size}."
    failed = [f"{each.gpu.name}: {each.outcome.problem}" for each in tried if _failed(each)]
    header = ("GPU", "memory", "used", "share", "", "source")
    notes = (*failed, verdict, *_why(each.outcome for each in tried))
    return Table(f"{command} on every GPU", header, tuple(rows), notes)


def largest_table(command: str, search: Search) -> Table:
    """Return a table of the tried values, with the largest one that fits named."""
    total_bytes = search.gpu.total_bytes
    rows = tuple(
        (
            str(value),
            _needed(found),
            f"{found.needed_bytes / total_bytes:.1%}" if found.fits else "",
            _word(found),
            _bar(found, total_bytes),
        )
        for value, found in sorted(search.outcomes.items())
    )
    caption = f"{command} on {search.gpu.name}, {format_bytes(total_bytes)}"
    notes = (_largest(search), *_why(search.outcomes.values()))
    return Table(caption, (search.option, "used", "share", "", ""), rows, notes)


def gpus_as_dict(command: str, tried: Sequence[GPUOutcome]) -> dict[str, Any]:
    """Return the content of `gpus_table` as plain data, with sizes in bytes."""
    smallest = smallest_that_fits(tried)
    return {
        "program": command,
        "smallest": smallest and smallest.gpu.name,
        "gpus": [
            {
                "gpu": each.gpu.name,
                "total_bytes": each.gpu.total_bytes,
                "same_as": each.same_as,
                **_as_dict(each.outcome),
            }
            for each in tried
        ],
    }


def largest_as_dict(command: str, search: Search) -> dict[str, Any]:
    """Return the content of `largest_table` as plain data, with sizes in bytes."""
    return {
        "program": command,
        "gpu": search.gpu.name,
        "total_bytes": search.gpu.total_bytes,
        "option": search.option,
        "largest": search.largest,
        "smallest_that_does_not_fit": search.too_large,
        "runs": [
            {"value": value, **_as_dict(found)} for value, found in sorted(search.outcomes.items())
        ],
    }


def _as_dict(found: RunOutcome) -> dict[str, Any]:
    facts = found.gpu_facts
    named = {
        "needed_bytes": found.needed_bytes,
        "gpu_facts": None if facts is None else sorted(facts),
    }
    return asdict(found) | named | {"outcome": found.outcome}


def _failed(each: GPUOutcome) -> bool:
    return each.outcome.fits is None


_WORDS = {
    Fit.DOES_NOT_FIT: "does NOT fit",
    Fit.MAY_NOT_FIT: "may NOT fit",
    Fit.CUT_SHORT: "failed",
}


def _word(found: RunOutcome) -> str:
    return _WORDS.get(found.outcome, str(found.outcome))


def _why(outcomes: Iterable[RunOutcome]) -> Iterator[str]:
    """Return why the program may need more, or less, than the runs counted."""
    found = {
        f"{each.outcome}, because {reason}": None
        for each in outcomes
        if each.outcome in (Fit.AT_LEAST, Fit.AT_MOST, Fit.ABOUT, Fit.MAY_NOT_FIT)
        for reason in each.reasons
    }
    yield from [*found][:MOST_REASONS]


def _needed(found: RunOutcome) -> str:
    """Return the device memory used, or a dash if the program did not fit."""
    return format_bytes(found.needed_bytes) if found.fits else "-"


def _bar(found: RunOutcome, total_bytes: int) -> str:
    share = min(1.0, found.needed_bytes / total_bytes) if found.fits else 1.0
    return ("#" * round(_BAR * share)).ljust(_BAR, ".") + (" " if found.fits else ">")


def _largest(search: Search) -> str:
    if search.interrupted:
        return (
            f"Interrupted at {search.option} {search.interrupted[0]}. Largest value that fits so "
            f"far: {search.largest}. Smallest that does not: {search.too_large}."
        )
    if search.largest is None:
        return f"Even {search.option} {search.too_large} does not fit."
    runs = f"{len(search.outcomes)} runs"
    if search.too_large is None:
        return f"{search.option} {search.largest} fits; the search stopped after {runs}."
    fits = "fits" if search.outcomes[search.largest].outcome.is_sure else "may fit"
    return (
        f"Largest value that {fits}: {search.option} {search.largest}; "
        f"{search.too_large} does not ({runs})."
    )
