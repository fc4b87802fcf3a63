"""What a command takes: wall time, CPU time and memory, with all processes that it starts."""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from vramlab.errors import VramlabError

PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37
"""Source: linux/prctl.h."""

SAMPLE_SECONDS = 1.0
LAST_WORDS = 2_000
STRAGGLERS_SECONDS = 60


class CommandFailed(VramlabError):
    """A command has ended with a status that it should not."""


@dataclass(frozen=True)
class Usage:
    """What a command took.

    Attributes:
        wall_s: from its start to its end.
        cpu_s: of it and all processes that it started, after `adopt_orphans` also of those that it
            left behind.
        main_bytes: the most that its own process held: resident memory, shared pages included.
        child_bytes: the most that any one of the other processes held.
    """

    wall_s: float
    cpu_s: float
    main_bytes: int
    child_bytes: int


def adopt_orphans() -> None:
    """Become the parent of processes whose parent ends, so that their CPU time can be counted."""
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _adopts_orphans() -> bool:
    if sys.platform != "linux":
        return False
    answer = ctypes.c_int()
    ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0)
    return bool(answer.value)


def run(
    command: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    allowed: Sequence[int] = (0,),
) -> Usage:
    """Run a command to its end; after `adopt_orphans`, wait for what it leaves behind, too.

    Args:
        command: its words.
        folder: where it runs.
        environment: its variables.
        allowed: the exit statuses that are all right.

    Raises:
        CommandFailed: it has ended with another status; with the last of its output.
    """
    output = folder / "output.txt"
    cpu_before_s, start = _children_cpu_s(), time.perf_counter()
    with output.open("w") as stream:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=stream, stderr=stream
        )
        memory = _Memory(process.pid)
        memory.start()
        status = process.wait()
        wall_s = time.perf_counter() - start
        memory.end()
    if _adopts_orphans():
        _reap_orphans()
    if status not in allowed:
        last = output.read_text(errors="replace")[-LAST_WORDS:]
        raise CommandFailed(f"{' '.join(command)} ended with status {status}:\n{last}")
    return Usage(wall_s, _children_cpu_s() - cpu_before_s, memory.main_bytes, memory.child_bytes)


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _reap_orphans() -> None:
    """Wait for what a command has left behind; its CPU time counts when it has ended."""
    deadline = time.monotonic() + STRAGGLERS_SECONDS
    while time.monotonic() < deadline:
        try:
            number, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not number:
            time.sleep(0.1)


class _Memory(threading.Thread):
    """Looks now and then at how much memory a process and its descendants hold."""

    def __init__(self, number: int) -> None:
        super().__init__(daemon=True)
        self._main = psutil.Process(number)
        self._ended = threading.Event()
        self.main_bytes = self.child_bytes = 0

    def run(self) -> None:
        while not self._ended.wait(SAMPLE_SECONDS):
            try:
                self.main_bytes = max(self.main_bytes, self._main.memory_info().rss)
                children = self._main.children(recursive=True)
            except psutil.Error:
                return
            for child in children:
                try:
                    held = child.memory_info().rss
                except psutil.Error:
                    continue
                self.child_bytes = max(self.child_bytes, held)

    def end(self) -> None:
        self._ended.set()
        self.join()
