"""What has changed between two reports: by what the memory consists of, and by line.

A line is the same one in both if its file, its function and its text are: it may have moved.
Knows nothing of torch.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramlab.errors import VramlabError
from vramlab.report.summary import FORMAT
from vramlab.source_files import shown_name
from vramlab.units import parse_bytes

MOST_LINES = 12
"""Lines that are shown of those that changed."""

ELSEWHERE = "(PyTorch itself)"


class UnreadableReport(VramlabError):
    """A file is no report of `vramlab run --json`; the message says why."""


@dataclass(frozen=True)
class SizeChange:
    """Bytes of one thing in both reports."""

    name: str
    """Of what."""
    old_bytes: int
    """Before."""
    new_bytes: int
    """After."""
    detail: str = ""
    """The text of a line."""

    @property
    def growth_bytes(self) -> int:
        """How much more it is; below 0: less."""
        return self.new_bytes - self.old_bytes


@dataclass(frozen=True)
class DeviceChange:
    """What has changed on one GPU."""

    index: int
    """CUDA device index."""
    totals: tuple[SizeChange, ...]
    """Needed on the GPU; reserved and allocated at most."""
    categories: tuple[SizeChange, ...]
    """What is allocated at the peak, by what it is."""
    lines: tuple[SizeChange, ...]
    """The same by line, the greatest change first; only those that changed."""

    @property
    def needed(self) -> SizeChange:
        """What the driver counts: reserved memory and context."""
        return self.totals[0]

    @property
    def sizes_changed(self) -> bool:
        """Tell whether it needs or holds more or less of anything, whichever lines say so."""
        return any(each.growth_bytes for each in (*self.totals, *self.categories))

    @property
    def changed(self) -> bool:
        """Tell whether anything has."""
        return self.sizes_changed or any(each.growth_bytes for each in self.lines)


@dataclass(frozen=True)
class ReportDifference:
    """What has changed between two runs."""

    program: str
    """The command line of the newer one."""
    devices: tuple[DeviceChange, ...]
    """GPUs that either of them used."""
    conditions: tuple[str, ...]
    """What else is not the same, as sentences."""
    old_fits: bool | None
    """Whether there was memory enough before."""
    new_fits: bool | None
    """And after."""

    @property
    def growth_bytes(self) -> int:
        """How much more is needed on the GPU where that has grown most."""
        return max((device.needed.growth_bytes for device in self.devices), default=0)

    @property
    def changed(self) -> bool:
        """Tell whether anything has."""
        return any(device.changed for device in self.devices)

    def grew(self, allowed: str = "0") -> bool:
        """Tell whether a GPU needs more than is allowed, or memory has begun to run out.

        Args:
            allowed: growth of each GPU, as a size (`64 MiB`) or a share of the old need (`1%`).

        Raises:
            ValueError: it is neither.
        """
        if self.new_fits is False and self.old_fits is not False:
            return True
        return any(
            each.needed.growth_bytes > _allowed_bytes(allowed, each.needed.old_bytes)
            for each in self.devices
        )


def read_report(path: Path) -> dict[str, Any]:
    """Read a report that `vramlab run --json` has written.

    Raises:
        UnreadableReport: there is none, or it is of another kind.
    """
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UnreadableReport(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    if not isinstance(report, dict) or "devices" not in report:
        raise UnreadableReport(f"{path} is no report: `vramlab run --json` writes them")
    if report.get("format") != FORMAT:
        raise UnreadableReport(
            f"{path} is a report in format {report.get('format')}, and this vramlab reads {FORMAT}"
        )
    return report


def compare_reports(old: dict[str, Any], new: dict[str, Any]) -> ReportDifference:
    """Say what has changed from an older report to a newer one."""
    pairs = zip(_used(old), _used(new), strict=False)
    return ReportDifference(
        program=new.get("program", ""),
        devices=tuple(
            _device_change(before, after, old.get("folder", ""), new.get("folder", ""))
            for before, after in pairs
        ),
        conditions=tuple(_conditions(old, new)),
        old_fits=old.get("fits"),
        new_fits=new.get("fits"),
    )


def _used(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [device for device in report["devices"] if device["context_bytes"]]


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
    before, after = len(_used(old)), len(_used(new))
    if before != after:
        yield f"{before} GPUs were used before, {after} now: only those of both are compared"
    for when, report in (("before", old), ("now", new)):
        if report.get("fits") is False:
            yield f"memory ran out {when}, so that the peak is that of the time until then"
        elif report.get("error"):
            yield f"the program failed {when}: {str(report['error']).splitlines()[0]}"


def _device_change(
    old: dict[str, Any], new: dict[str, Any], old_folder: str, new_folder: str
) -> DeviceChange:
    named = (
        ("needed on the GPU", "needed_bytes"),
        ("reserved at most", "peak_reserved_bytes"),
        ("allocated at most", "peak_allocated_bytes"),
    )
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
        totals=tuple(SizeChange(name, old[field], new[field]) for name, field in named),
        categories=tuple(
            SizeChange(name, before.get(name, 0), after.get(name, 0))
            for name in dict.fromkeys([*after, *before])
        ),
        lines=tuple(sorted(lines, key=lambda each: -abs(each.growth_bytes))),
    )


def _lines(device: dict[str, Any], folder: str) -> Counter[tuple[str, str, str]]:
    """Bytes by file, function and text of a line."""
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
        try:
            return int(old_bytes * float(text.strip()[:-1]) / 100)
        except ValueError:
            raise ValueError(f"{text!r} is no share: write it like '1%'") from None
    return parse_bytes(text)
