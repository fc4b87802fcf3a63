"""Snapshots that `vramlab diff` compares."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from tests.vramlab.explaining.test_remedies import recorded, stack
from vramlab import cli
from vramlab.allocator import CachingAllocator
from vramlab.explaining.as_report import without_sources
from vramlab.units import MIB


def written(folder: Path, name: str, size_bytes: int) -> str:
    def program(allocator: CachingAllocator) -> None:
        allocator.malloc(20 * MIB, context=stack(1))
        allocator.malloc(size_bytes, context=stack(2))

    path = folder / name
    path.write_bytes(pickle.dumps(recorded(program)))
    return f"{path}"


def test_what_grew_is_shown_by_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = written(tmp_path, "old.pickle", 30 * MIB)
    new = written(tmp_path, "new.pickle", 50 * MIB)
    assert cli.main(["diff", "--json", old, new]) == 1
    (device,) = json.loads(capsys.readouterr().out)["devices"]
    assert [(total["old_bytes"], total["new_bytes"]) for total in device["totals"]] == [
        (50 * MIB, 70 * MIB)
    ] * 3
    (line,) = device["lines"]
    assert (line["old_bytes"], line["new_bytes"]) == (30 * MIB, 50 * MIB)
    assert line["name"] == "train/model.py forward"
    assert cli.main(["diff", old, old]) == 0


def test_a_damaged_snapshot_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new.pickle"
    path.write_bytes(b"")
    assert cli.main(["diff", f"{path}", f"{path}"]) == 2
    assert f"{path}: the file is empty" in capsys.readouterr().err


def test_a_snapshot_and_a_report_meet_on_what_both_have() -> None:
    line = {"filename": "/home/me/train/model.py", "line": 2, "function": "forward"}
    device = {
        "index": 0,
        "needed_bytes": 9 * MIB,
        "peak_reserved_bytes": 6 * MIB,
        "lines": [
            {"line": line, "size_bytes": MIB, "text": "x = y"},
            {"line": None, "size_bytes": 5},
        ],
    }
    (reduced,) = without_sources({"devices": [device]})["devices"]
    assert reduced["needed_bytes"] == 6 * MIB
    assert reduced["lines"] == [
        {"line": {**line, "filename": "train/model.py"}, "size_bytes": MIB},
        {"line": None, "size_bytes": 5},
    ]
