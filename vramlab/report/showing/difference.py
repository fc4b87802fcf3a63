"""Compares two reports by category and by line.

Lines match if their file, function and text are equal, even if the line number changed. Does not
import torch.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramlab.errors import VramlabError
from vramlab.report.showing.verdict import MOST_REASONS
from vramlab.report.summary import FORMAT, Fit
from vramlab.source_files import shown_name
from vramlab.units import parse_bytes

MOST_LINES = 12
"""Changed lines that are shown."""

ELSEWHERE = "(inside PyTorch)"


_TOTALS = {
    "needed_bytes": "device memory used",
    "peak_reserved_bytes": "peak reserved",
    "peak_allocated_bytes": "peak allocated",
}
"""Totals that are compared for each GPU."""

_OF_GPU = ("index", "context_bytes", *_TOTALS, "category_bytes", "lines")


class UnreadableReport(VramlabError):
    """A file is not a report of `vramlab run --json`; the message says why."""


_NEEDED = "create a report with `vramlab run --json FILE`"


@dataclass(frozen=True)
class SizeChange:
    """A size in both reports."""

    name: str
    """What the size is of."""
    old_bytes: int
    """Size in the earlier report."""
    new_bytes: int
    """Size in the later report."""
    detail: str = ""
    """Source of a line."""

    @property
    def growth_bytes(self) -> int:
        """Growth from the earlier to the later report; negative if it shrank."""
        return self.new_bytes - self.old_bytes


@dataclass(frozen=True)
class DeviceChange:
    """The comparison of one GPU."""

    index: int
    """CUDA device index."""
    totals: tuple[SizeChange, ...]
    """Device memory used, peak reserved, peak allocated."""
    categories: tuple[SizeChange, ...]
    """Allocated at the peak, by category."""
    lines: tuple[SizeChange, ...]
    """Changed lines, largest change first."""

    @property
    def needed(self) -> SizeChange:
        """Device memory used: reserved memory plus the CUDA context."""
        return self.totals[0]

    @property
    def sizes_changed(self) -> bool:
        """Check whether a total or a category changed."""
        return any(each.growth_bytes for each in (*self.totals, *self.categories))

    @property
    def changed(self) -> bool:
        """Check whether a total, a category or a line changed."""
        return self.sizes_changed or any(each.growth_bytes for each in self.lines)


@dataclass(frozen=True)
class ReportDifference:
    """The comparison of two runs."""

    program: str
    """Command line of the later run."""
    devices: tuple[DeviceChange, ...]
    """GPUs that at least one of the runs used."""
    conditions: tuple[str, ...]
    """Other differences between the runs, as sentences."""
    old_fits: bool | None
    """Whether the earlier run fits; None: unknown."""
    new_fits: bool | None
    """Whether the later run fits; None: unknown."""
    new_reasons: tuple[str, ...] = ()
    """Reasons for uncertainty that only the later run has."""

    @property
    def growth_bytes(self) -> int:
        """Growth of the device memory used, on the GPU where it grew most."""
        return max((device.needed.growth_bytes for device in self.devices), default=0)

    @property
    def changed(self) -> bool:
        """Check whether anything changed."""
        return any(device.changed for device in self.devices)

    def grew(self, allowed: str = "0") -> bool:
        """Check whether a GPU grew more than allowed, or the program no longer fits.

        Args:
            allowed: Allowed growth per GPU, as a size (`64 MiB`) or a percentage (`1%`).

        Raises:
            ValueError: `allowed` is neither.
        """
        if self.new_fits is False and self.old_fits is not False:
            return True
        return any(
            each.needed.growth_bytes > _allowed_bytes(allowed, each.needed.old_bytes)
            for each in self.devices
        )


def read_report(path: Path) -> dict[str, Any]:
    """Read a report written by `vramlab run --json`.

    Raises:
        UnreadableReport: The file is missing or not such a report.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableReport(f"can't open {str(path)!r}: {error.strerror}; {_NEEDED}") from error
    except ValueError as error:
        raise UnreadableReport(
            f"{path} is not a report (damaged, or not JSON): {_NEEDED}"
        ) from error
    if not isinstance(report, dict) or "devices" not in report:
        raise UnreadableReport(f"{path} is not a report: {_NEEDED}")
    if report.get("format") == FORMAT and not _has_devices(report["devices"]):
        raise UnreadableReport(
            f"{path} is not a valid report: every GPU in it needs {', '.join(_OF_GPU)}"
        )
    if report.get("format") != FORMAT:
        raise UnreadableReport(
            f"{path} has report format {report.get('format')}, but this vramlab reads format "
            f"{FORMAT}: create the report again with this version"
        )
    return report


def _has_devices(devices: Any) -> bool:
    return isinstance(devices, list) and all(
        isinstance(device, dict) and all(name in device for name in _OF_GPU) for device in devices
    )


def compare_reports(old: dict[str, Any], new: dict[str, Any]) -> ReportDifference:
    """Compare an earlier report with a later one, GPU by GPU.

    A GPU that only one of the runs used is compared with an empty GPU.
    """
    before, after = _used(old), _used(new)
    pairs = [
        (before.get(index) or _unused(index), after.get(index) or _unused(index))
        for index in sorted({*before, *after})
    ]
    return ReportDifference(
        program=new.get("program", ""),
        devices=tuple(
            _device_change(before, after, old.get("folder", ""), new.get("folder", ""))
            for before, after in pairs
        ),
        conditions=tuple(_conditions(old, new)),
        old_fits=old.get("fits"),
        new_fits=new.get("fits"),
        new_reasons=tuple(
            text
            for text in _reasons(new)
            if without_lines(text) not in map(without_lines, _reasons(old))
        ),
    )


def _used(report: dict[str, Any]) -> dict[int, dict[str, Any]]:
    """Return the GPUs that a program used, by CUDA device index."""
    return {device["index"]: device for device in report["devices"] if device["context_bytes"]}


def _unused(index: int) -> dict[str, Any]:
    """Return the report of an unused GPU."""
    return {"index": index, **dict.fromkeys(_TOTALS, 0), "category_bytes": {}, "lines": []}


def _conditions(old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for name, words in (
        ("gpu", "GPU"),
        ("gpu_count", "number of GPUs"),
        ("engine", "engine"),
        ("torch_version", "PyTorch"),
    ):
        before, after = old.get(name), new.get(name)
        if before is not None and after is not None and before != after:
            yield f"{words}: {before} before, {after} now"
    before, after = _used(old), _used(new)
    if before.keys() != after.keys():
        yield f"GPUs used: {_named(before)} before, {_named(after)} now"
    for when, report in (("earlier", old), ("later", new)):
        if report.get("fits") is False:
            yield f"the {when} run ran out of memory, so its peak covers the time until then"
        elif report.get("error"):
            yield f"the {when} run failed: {str(report['error']).splitlines()[0]}"
        word = report.get("outcome")
        if word in (Fit.AT_LEAST, Fit.AT_MOST, Fit.ABOUT, Fit.MAY_NOT_FIT):
            for text in _reasons(report)[:MOST_REASONS]:
                yield f"the {when} run is uncertain ({word}), because {text}"


def _named(indices: Iterable[int]) -> str:
    return ", ".join(f"cuda:{index}" for index in sorted(indices)) or "none"


def _reasons(report: dict[str, Any]) -> list[str]:
    return [reason["text"] for reason in report.get("reasons", ())]


def without_lines(text: str) -> str:
    """Return a reason without its line number, which may change between runs."""
    return re.sub(r":\d+(?= |$)", "", text)


def _device_change(
    old: dict[str, Any], new: dict[str, Any], old_folder: str, new_folder: str
) -> DeviceChange:
    before, after = old["category_bytes"], new["category_bytes"]
    lines_before, lines_after = _lines(old, old_folder), _lines(new, new_folder)
    lines = [
        SizeChange(f"{name} {function}".strip(), old_bytes, new_bytes, text)
        for name, function, text in {**lines_after, **lines_before}
        if (old_bytes := lines_before[name, function, text])
        != (new_bytes := lines_after[name, function, text])
    ]
    return DeviceChange(
        index=new["index"],
        totals=tuple(SizeChange(name, old[field], new[field]) for field, name in _TOTALS.items()),
        categories=tuple(
            SizeChange(name, before.get(name, 0), after.get(name, 0))
            for name in dict.fromkeys([*after, *before])
        ),
        lines=tuple(sorted(lines, key=lambda each: -abs(each.growth_bytes))),
    )


def _lines(device: dict[str, Any], folder: str) -> Counter[tuple[str, str, str]]:
    """Return bytes by file, function and text of a line."""
    sums: Counter[tuple[str, str, str]] = Counter()
    for use in device["lines"]:
        frame, text = use["line"], use.get("text", "")
        if frame is None:
            sums[ELSEWHERE, "", ""] += use["size_bytes"]
            continue
        name = frame["filename"]
        name = shown_name(name, folder) if os.path.isabs(name) else name
        function = frame["function"].rpartition(".<locals>.")[2]
        sums[name, function, text or f"line {frame['line']}"] += use["size_bytes"]
    return sums


def _allowed_bytes(text: str, old_bytes: int) -> int:
    if text.strip().endswith("%"):
        with suppress(ValueError, OverflowError):
            if (share := float(text.strip()[:-1])) >= 0:
                return int(old_bytes * share / 100)
        raise ValueError(f"invalid growth {text!r}: use a percentage or a size: '1%' or '64 MiB'")
    return parse_bytes(text)
