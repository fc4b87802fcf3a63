"""What runs on several GPUs, or with several values, have found: as tables and as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from vramlab.sizing.gpus import GPUOutcome, smallest_that_fits
from vramlab.sizing.largest import Search
from vramlab.sizing.runs import RunOutcome
from vramlab.table import Table
from vramlab.units import format_bytes

_BAR = 30
"""Characters of the bar of a GPU's whole memory."""


def gpus_table(command: str, tried: Sequence[GPUOutcome]) -> Table:
    """Say for each GPU whether a program fits, and which is the smallest on which it does."""
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
                f"the run on {each.same_as}" if each.same_as else "a run",
            )
        )
    smallest = smallest_that_fits(tried)
    if smallest is None:
        verdict = "It fits on none of them."
    else:
        size = format_bytes(smallest.gpu.total_bytes)
        verdict = f"The smallest on which it fits: {smallest.gpu.name}, {size}."
    failed = [f"{each.gpu.name}: {each.outcome.problem}" for each in tried if _failed(each)]
    header = ("GPU", "memory", "needed", "share", "", "known from")
    return Table(f"{command} on every GPU", header, tuple(rows), (*failed, verdict))


def largest_table(command: str, search: Search) -> Table:
    """Show what each value needs, and which is the largest that fits."""
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
    return Table(caption, (search.option, "needed", "share", "", ""), rows, (_largest(search),))


def gpus_as_dict(command: str, tried: Sequence[GPUOutcome]) -> dict[str, Any]:
    """Give the same as plain data, sizes in bytes."""
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
    """Give the same as plain data, sizes in bytes."""
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
    return asdict(found) | named


def _failed(each: GPUOutcome) -> bool:
    return each.outcome.fits is None


def _word(found: RunOutcome) -> str:
    return {True: "fits", False: "does NOT fit", None: "failed"}[found.fits]


def _needed(found: RunOutcome) -> str:
    """The peak; of what did not fit, nobody knows more than that it is more than there was."""
    return format_bytes(found.needed_bytes) if found.fits else "-"


def _bar(found: RunOutcome, total_bytes: int) -> str:
    share = min(1.0, found.needed_bytes / total_bytes) if found.fits else 1.0
    return ("#" * round(_BAR * share)).ljust(_BAR, ".") + (" " if found.fits else ">")


def _largest(search: Search) -> str:
    if search.largest is None:
        return f"Not even {search.option} {search.too_large} fits."
    runs = f"{len(search.outcomes)} runs"
    if search.too_large is None:
        return f"{search.option} {search.largest} fits; after {runs} nothing larger was tried."
    return (
        f"The largest that fits: {search.option} {search.largest}; "
        f"{search.too_large} does not ({runs})."
    )
