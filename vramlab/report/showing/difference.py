"""What has changed between two reports: by what the memory consists of, and by line.

A line is the same one in both if its file, its function and its text are: it may have moved.
Knows nothing of torch.
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
"""Lines that are shown of those that changed."""

ELSEWHERE = "(PyTorch itself)"


_TOTALS = {
    "needed_bytes": "needed on the GPU",
    "peak_reserved_bytes": "reserved at most",
    "peak_allocated_bytes": "allocated at most",
}
"""What is compared of a GPU as a whole."""

_OF_GPU = ("index", "context_bytes", *_TOTALS, "category_bytes", "lines")


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
    """Whether the program fitted before; None: not known."""
    new_fits: bool | None
    """And now."""
    new_reasons: tuple[str, ...] = ()
    """Why the newer run may have counted too little or too much, where the older one did not."""

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
    if report.get("format") == FORMAT and not _has_devices(report["devices"]):
        raise UnreadableReport(
            f"{path} is no report: a GPU in it lacks one of {', '.join(_OF_GPU)}"
        )
    if report.get("format") != FORMAT:
        raise UnreadableReport(
            f"{path} is a report in format {report.get('format')}, and this vramlab reads {FORMAT}"
        )
    return report


def _has_devices(devices: Any) -> bool:
    return isinstance(devices, list) and all(
        isinstance(device, dict) and all(name in device for name in _OF_GPU) for device in devices
    )


def compare_reports(old: dict[str, Any], new: dict[str, Any]) -> ReportDifference:
    """Say what has changed from an older report to a newer one, GPU by GPU.

    A GPU that only one of them used is compared with an empty one.
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
    """Return what a report says of a GPU on which there is nothing."""
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
    for when, report in (("before", old), ("now", new)):
        if report.get("fits") is False:
            yield f"memory ran out {when}, so that the peak is that of the time until then"
        elif report.get("error"):
            yield f"the program failed {when}: {str(report['error']).splitlines()[0]}"
        word = report.get("outcome")
        if word in (Fit.AT_LEAST, Fit.AT_MOST, Fit.ABOUT, Fit.MAY_NOT_FIT):
            for text in _reasons(report)[:MOST_REASONS]:
                yield f"{when} {word}, because {text}"


def _named(indices: Iterable[int]) -> str:
    return ", ".join(f"cuda:{index}" for index in sorted(indices)) or "none"


def _reasons(report: dict[str, Any]) -> list[str]:
    return [reason["text"] for reason in report.get("reasons", ())]


def without_lines(text: str) -> str:
    """Return a reason without the number of its line, which moves."""
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
        with suppress(ValueError, OverflowError):
            if (share := float(text.strip()[:-1])) >= 0:
                return int(old_bytes * share / 100)
        raise ValueError(f"invalid growth {text!r}: write it like '1%' or '64 MiB'")
    return parse_bytes(text)
