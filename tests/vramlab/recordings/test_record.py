"""`vramlab record` as it runs: processes of their own, interruption, failures, no GPU."""

from __future__ import annotations

import multiprocessing.forkserver
import os
import sys
from pathlib import Path

import pytest
from recorded_entries import EXPERIMENT, INFERENCE, TRAINING

from vramlab.cli import main
from vramlab.recordings import worker
from vramlab.recordings.entries import all_entries, select, trace_group
from vramlab.recordings.record import RecordingProgress, record
from vramlab.recordings.store import RecordingFile
from vramlab.recordings.worker import Target

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True, scope="module")
def _own_fork_server() -> None:
    """End the fork server that other tests may have started, for processes with another GPU."""
    multiprocessing.forkserver._forkserver._stop()


T4 = Target(virtual="T4", torch_version="2.11")


def fail_some(entry: str, target: Target, answer: str, log: str) -> None:
    """What runs in the processes: the workload dies in one way, the experiment in another."""
    if entry == TRAINING:
        print("about to die", flush=True)
        worker._redirect(log)
        print("last words", flush=True)
        os._exit(7)
    if entry == EXPERIMENT:
        target = Target(virtual="no such GPU")
    worker.run(entry, target, answer, log)


def refuse_forks(entry: str, target: Target, answer: str, log: str) -> None:
    """As where something that the server imports has used CUDA already."""
    if "vramlab.recordings.preload" in sys.modules:
        Path(answer).write_text('{"error": "CUDA was used before the fork", "bad_fork": true}')
    else:
        worker.run(entry, target, answer, log)


def test_record_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    names = ["context", EXPERIMENT, INFERENCE]
    seen: list[tuple[str, bool]] = []

    def stop_after_two(progress: RecordingProgress) -> None:
        seen.append((progress.name, progress.known))
        if len(seen) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record(names, tmp_path, T4, report=stop_after_two)
    before = RecordingFile.open(tmp_path / "virtual-t4-torch2.11.json")
    assert list(before.entries) == names[:2]
    assert list(before.read_traces()) == [EXPERIMENT]

    after = record(names, tmp_path, T4, report=stop_after_two)
    assert seen[2:] == [("context", True), (EXPERIMENT, True), (INFERENCE, False)]
    assert {name: after.entries[name] for name in names[:2]} == before.entries
    assert after.entries[INFERENCE].stages[-1].name == "del outputs"
    assert main(["compare", str(after.path)]) == 0


def test_failures_lose_nothing_else_and_are_tried_again(tmp_path: Path) -> None:
    names = [TRAINING, EXPERIMENT, INFERENCE]
    recording = record(names, tmp_path, T4, run=fail_some)
    status = {name: entry.status for name, entry in recording.entries.items()}
    assert status == {TRAINING: "failed", EXPERIMENT: "failed", INFERENCE: "ok"}
    assert recording.entries[TRAINING].error == (
        "its process ended with status 7 and without an answer; the last that it printed: "
        "last words"
    )
    unknown = recording.entries[EXPERIMENT].error
    assert unknown is not None
    assert unknown.startswith("UnknownGPUError: No GPU named 'no such GPU'")

    known: list[bool] = []
    again = record(names, tmp_path, T4, report=lambda progress: known.append(progress.known))
    assert known == [False, False, True]
    assert {entry.status for entry in again.entries.values()} == {"ok"}


def test_processes_start_anew_where_a_fork_cannot_use_cuda(tmp_path: Path) -> None:
    recording = record(["context"], tmp_path, T4, run=refuse_forks)
    assert recording.entries["context"].status == "ok"


def test_the_command_lists_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--list", "--only", "context", "--only", "zoo/vgg16-*"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0] == "context"
    assert len(listed) > 1
    assert all(name.startswith("zoo/vgg16-") for name in listed[1:])
    assert main(["record", "--only", "nothing-like-it"]) == 2
    assert "no entry fits 'nothing-like-it'" in capsys.readouterr().err
    assert main(["record", "--virtual", "T5", "--out", str(tmp_path), "--only", "context"]) == 2
    assert "No GPU named 'T5'" in capsys.readouterr().err


def test_every_entry_has_a_name_of_its_own_and_a_file_for_its_trace() -> None:
    names = all_entries()
    assert len(set(names)) == len(names)
    groups = {trace_group(name) for name in names}
    assert groups == {"allocator", "rules", "experiments", "text", "vision"}
    assert select(names, []) == names
    assert select(names, ["zoo/gpt2-xl-*", "context"])[0] == "context"
