"""Record a GPU: each entry in a fresh process, each result on disk before the next one starts."""

from __future__ import annotations

import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext, SpawnContext
from pathlib import Path
from typing import Any

from vramlab import catalogue
from vramlab.errors import VramlabError
from vramlab.recordings import worker
from vramlab.recordings.entries import trace_group
from vramlab.recordings.store import OK, RecordedEntry, RecordingFile, Writer, replace_file
from vramlab.recordings.worker import MACHINE, Target

TIMEOUT_S = 180.0

Run = Callable[[str, Target, str, str], None]
Context = ForkServerContext | SpawnContext
_LOG_LINES = 15


class NoGPUError(VramlabError):
    """There is nothing to record."""


@dataclass(frozen=True)
class RecordingProgress:
    """One step of a recording under way."""

    number: int
    """Which entry it was, from 1."""
    count: int
    """How many there are."""
    name: str
    entry: RecordedEntry
    known: bool
    """It was recorded before, and is kept."""


def record(
    entries: Sequence[str],
    folder: Path,
    target: Target,
    *,
    again: bool = False,
    timeout_s: float = TIMEOUT_S,
    report: Callable[[RecordingProgress], None] = lambda progress: None,
    writer: Writer = replace_file,
    run: Run = worker.run,
) -> RecordingFile:
    """Record entries that are not recorded yet, one after the other.

    What failed before is tried again. Whatever stops it, the file holds what was done until then.

    Args:
        entries: ids, from `entries.select`.
        folder: where the recording is, or is to be made.
        target: the GPU.
        again: also record what is there already.
        timeout_s: how long one entry may take.
        report: called after each entry.
        writer: writes files.
        run: what the processes run.

    Raises:
        NoGPUError: this machine has no GPU that PyTorch can use.
        UnknownGPUError: no GPU has the name of the virtual one.
        RecordingError: the recording in the folder cannot be added to, or not be written.
    """
    if target.virtual is not None:
        catalogue.find(target.virtual)
    with _Processes(target, timeout_s, run) as processes:
        recording = RecordingFile.open_or_new(folder, processes.machine(), writer)
        for number, name in enumerate(entries, start=1):
            known = recording.entries.get(name)
            if known is not None and known.status == OK and not again:
                report(RecordingProgress(number, len(entries), name, known, known=True))
                continue
            answer = processes.answer(name)
            entry = RecordedEntry.from_dict(answer["entry"])
            if entry.stages:
                trace = {"trace": answer["trace"], "statistics": answer["statistics"]}
                recording.put(name, entry, trace, trace_group(name))
            else:
                recording.put(name, entry)
            report(RecordingProgress(number, len(entries), name, entry, known=False))
    return recording


class _Processes:
    """Runs one entry at a time in a process forked from a server that never touches CUDA."""

    def __init__(self, target: Target, timeout_s: float, run: Run) -> None:
        self._target = target
        self._timeout_s = timeout_s
        self._target_function = run
        # How PyTorch finds the names of C++ functions; dladdr needs no other program.
        os.environ.setdefault("TORCH_SYMBOLIZE_MODE", "dladdr")
        # So that nothing imported by the server touches CUDA by asking whether it is there.
        os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        self._context: Context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(list(worker.PRELOADED))
        self._folder = tempfile.TemporaryDirectory(prefix="vramlab-record-")
        self._count = 0

    def __enter__(self) -> _Processes:
        return self

    def __exit__(self, *exception: object) -> None:
        self._folder.cleanup()

    def machine(self) -> dict[str, Any]:
        """Describe the machine.

        Raises:
            NoGPUError: PyTorch cannot use a GPU here.
        """
        answer = self._run(MACHINE, TIMEOUT_S)
        if answer.get("bad_fork"):  # slower: every process imports everything again
            self._context = multiprocessing.get_context("spawn")
            answer = self._run(MACHINE, TIMEOUT_S)
        if "machine" not in answer and self._target.virtual:
            raise NoGPUError(f"there is no such virtual GPU: {answer['error']}")
        if "machine" not in answer:
            raise NoGPUError(
                "there is no GPU on this machine that PyTorch can use, and a recording is made of "
                f"a real one ({answer['error']}). To try the commands, record a virtual GPU: "
                "vramlab record --virtual H200 --out FOLDER"
            )
        machine: dict[str, Any] = answer["machine"]
        return machine

    def answer(self, name: str) -> dict[str, Any]:
        """Read the answer of an entry's process; failures are answers, too."""
        started = time.perf_counter()
        answer = self._run(name, self._timeout_s)
        if "entry" not in answer:
            seconds = round(time.perf_counter() - started, 3)
            status = answer.get("status") or ("timeout" if answer.get("timeout") else "failed")
            answer["entry"] = RecordedEntry(status, seconds, error=answer["error"]).to_dict()
        return answer

    def _run(self, name: str, timeout_s: float) -> dict[str, Any]:
        self._count += 1
        path = Path(self._folder.name, f"{self._count}.json")
        log = path.with_suffix(".log")
        process = self._context.Process(
            target=self._target_function, args=(name, self._target, str(path), str(log))
        )
        process.start()
        try:
            process.join(timeout_s)
            if process.is_alive():
                return {
                    "timeout": True,
                    "error": f"it still ran after {timeout_s:g} s and was ended",
                }
        finally:
            if process.is_alive():
                process.kill()
                process.join()
        if path.exists():
            answer: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            path.unlink()
            return answer
        return {
            "error": f"its process ended with status {process.exitcode} and without an answer; "
            f"the last that it printed: {_end_of(log)}"
        }


def _end_of(log: Path) -> str:
    if not log.exists():
        return "nothing"
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:]
    return " | ".join(lines) or "nothing"
