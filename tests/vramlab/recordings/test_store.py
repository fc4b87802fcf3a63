"""Recordings on disk: added to, found again, never half written, and nothing else taken for one."""

from __future__ import annotations

import errno
import gzip
from pathlib import Path
from typing import Any

import pytest

from vramlab.recordings.store import (
    RecordedEntry,
    RecordedStage,
    RecordingError,
    RecordingFile,
    file_stem,
    replace_file,
)

MACHINE: dict[str, Any] = {
    "gpu": "NVIDIA H200",
    "virtual": False,
    "torch": "2.11.0+cu130",
    "properties": {"total_memory": 1},
    "driver": "580",
    "cudnn": 9,
    "transformers": "5",
}
ENTRY = RecordedEntry("ok", 1.5, (RecordedStage("forward", 512, 1024, 2**21, 2**21, 2**29),))
TRACE = {"trace": {"actions": ""}, "statistics": {"keys": [], "stages": []}}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_entries_and_traces_are_found_again(tmp_path: Path) -> None:
    recording = RecordingFile.open_or_new(tmp_path, MACHINE)
    recording.put("zoo/a", ENTRY, TRACE, "text")
    recording.put("zoo/b", RecordedEntry("failed", 0.1, error="ValueError: no"))
    recording.put("experiment/c", ENTRY, TRACE)
    again = RecordingFile.open_or_new(tmp_path, MACHINE)
    assert again.machine == MACHINE
    assert again.entries == recording.entries
    assert again.read_traces() == {"zoo/a": TRACE, "experiment/c": TRACE}
    assert names_in(tmp_path) == [
        "h200-torch2.11.0.experiments.trace.json.gz",
        "h200-torch2.11.0.json",
        "h200-torch2.11.0.text.trace.json.gz",
    ]


def test_traces_of_some_entries_are_read_alone(tmp_path: Path) -> None:
    recording = RecordingFile.open_or_new(tmp_path, MACHINE)
    for name in ("zoo/a", "zoo/ab", "zoo/é"):
        recording.put(name, ENTRY, TRACE, "text")
    again = RecordingFile.open(recording.path)
    assert again.read_traces(["zoo/a", "zoo/é"]) == {"zoo/a": TRACE, "zoo/é": TRACE}
    assert again.read_traces([]) == {}


def test_an_entry_recorded_again_replaces_the_one_before(tmp_path: Path) -> None:
    recording = RecordingFile.open_or_new(tmp_path, MACHINE)
    for name in ("zoo/a", "zoo/b", "zoo/a"):
        recording.put(name, ENTRY, TRACE, "text")
    other = {"trace": {"actions": "other"}, "statistics": {}}
    recording.put("zoo/a", RecordedEntry("ok", 9.0), other, "text")
    again = RecordingFile.open(recording.path)
    assert again.entries["zoo/a"].seconds == 9.0
    assert again.read_traces() == {"zoo/a": other, "zoo/b": TRACE}
    with gzip.open(tmp_path / "h200-torch2.11.0.text.trace.json.gz", "rt") as file:
        assert len(file.readlines()) == 2  # not three: the old trace is gone


@pytest.mark.parametrize("key", ["gpu", "driver", "properties", "cudnn", "transformers"])
def test_another_machine_does_not_go_into_the_same_file(tmp_path: Path, key: str) -> None:
    RecordingFile.open_or_new(tmp_path, MACHINE).put("zoo/a", ENTRY)
    path = tmp_path / "h200-torch2.11.0.json"
    machine = {**MACHINE, key: "another"}
    path.rename(tmp_path / f"{file_stem(machine)}.json")
    with pytest.raises(RecordingError, match=rf"{key}: .* there, 'another' here") as error:
        RecordingFile.open_or_new(tmp_path, machine)
    assert "--out" in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a recording "),
        (b'{"format": "vramlab recording 1", "mach', "is not a recording "),
        (b"\xff\xfe", "is not a recording "),
        (b"[1, 2]", "its format is None"),
        (b'{"format": "vramlab recording 2"}', "its format is 'vramlab recording 2'"),
        (b'{"format": "vramlab recording 1", "machine": {}}', "damaged"),
        (b'{"format": "vramlab recording 1", "machine": {}, "entries": {"a": {}}}', "damaged"),
        (b'{"format": "vramlab recording 1", "machine": {}, "entries": [1]}', "damaged"),
    ],
)
def test_a_foreign_or_damaged_file_is_refused_and_kept(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "h200-torch2.11.0.json"
    path.write_bytes(content)
    with pytest.raises(RecordingError, match=message):
        RecordingFile.open_or_new(tmp_path, MACHINE)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    "content",
    [b"text", gzip.compress(b"{}\n"), gzip.compress(b"{")],
    ids=["no gzip", "no traces in it", "no JSON in it"],  # gzip's bytes hold the time
)
def test_a_damaged_trace_file_is_refused(tmp_path: Path, content: bytes) -> None:
    recording = RecordingFile.open_or_new(tmp_path, MACHINE)
    recording.put("zoo/a", ENTRY, TRACE, "text")
    (tmp_path / "h200-torch2.11.0.text.trace.json.gz").write_bytes(content)
    with pytest.raises(RecordingError, match="trace file"):
        recording.read_traces()


class FullDisk:
    """Writes as long as there is room."""

    def __init__(self, room_bytes: int) -> None:
        self.room_bytes = room_bytes

    def __call__(self, path: Path, content: bytes) -> None:
        if len(content) > self.room_bytes:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room_bytes -= len(content)
        replace_file(path, content)


def test_a_full_disk_loses_nothing_that_was_there(tmp_path: Path) -> None:
    recording = RecordingFile.open_or_new(tmp_path, MACHINE, FullDisk(1200))

    def fill_up() -> None:
        for number in range(100):
            recording.put(f"zoo/{number}", ENTRY)

    with pytest.raises(RecordingError, match="No space left on device") as error:
        fill_up()
    done = len(recording.entries)
    assert 1 <= done < 100
    assert f"{done} entries, is kept: run the same command again" in str(error.value)
    assert RecordingFile.open(recording.path).entries == recording.entries
    assert names_in(tmp_path) == [recording.path.name]
