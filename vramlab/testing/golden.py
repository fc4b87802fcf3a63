"""Golden files: what a test needed when its file was written; `vramlab diff` reads them too.

    tests/test_train.py::test_step[bf16]   tests/vram/test_train/test_step-bf16.json
    tests/test_train.py::test_step[-1]     tests/vram/test_train/test_step-1-b5886adf7d24.json

A file has what decides, and the lines that hold most; nothing that differs from run to run.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vramlab.report.showing.difference import without_lines
from vramlab.report.summary import FORMAT, DeviceUse, LineUse, Summary
from vramlab.source_files import shown_name

FOLDER = "vram"
MOST_LINES = 20
"""Of those that hold most: what a review can read."""


_READABLE = re.compile(r"(Test\w*::)*test\w*(\[[\w.]+(-[\w.]+)*\])?")
"""Names that can be read back from their files: classes, a function and parameters, each known by
how it begins or where it stands."""

_HASH_LENGTH = 12


def golden_path(test_file: Path, name: str) -> Path:
    """Return where the golden file of a test is: no two tests have the same.

    A name is written with "-" for all that a file name may not have. Where another test could be
    written so, too, as `test_f[a/b]` and `test_f[a-b]`, the first has a part of its hash besides.

    Args:
        test_file: that the test is in.
        name: of the test in it, with its class and parameters.
    """
    safe = re.sub(r"[^\w.]+", "-", name).strip("-")
    if not _READABLE.fullmatch(name):
        safe += f"-{hashlib.sha256(name.encode()).hexdigest()[:_HASH_LENGTH]}"
    return test_file.parent / FOLDER / test_file.stem / f"{safe}.json"


def write_golden(path: Path, summary: Summary) -> None:
    """Write what a test needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(as_golden(summary), indent=1) + "\n", encoding="utf-8")


def as_golden(summary: Summary) -> dict[str, Any]:
    """Return of a report what is the same in every run."""
    return {
        "format": FORMAT,
        "program": summary.program,
        "gpu": summary.gpu,
        "gpu_count": summary.gpu_count,
        "torch_version": summary.torch_version,
        "outcome": summary.outcome,
        "reasons": [{"text": without_lines(reason.text)} for reason in summary.reasons],
        "devices": [_device(device, summary.folder) for device in summary.devices],
    }


def _device(device: DeviceUse, folder: str) -> dict[str, Any]:
    named = ("index", "total_bytes", "context_bytes", "needed_bytes")
    peaks = ("peak_reserved_bytes", "peak_allocated_bytes", "category_bytes")
    shown = [use for use in device.lines if use.line is not None][:MOST_LINES]
    return {
        **{name: getattr(device, name) for name in (*named, *peaks)},
        "lines": [_line(use, folder) for use in shown],
    }


def _line(use: LineUse, folder: str) -> dict[str, Any]:
    assert use.line is not None
    frame = {**asdict(use.line), "filename": shown_name(use.line.filename, folder)}
    return {
        "line": frame,
        "text": use.text,
        "size_bytes": use.size_bytes,
        "block_count": use.block_count,
        "category_bytes": use.category_bytes,
    }
