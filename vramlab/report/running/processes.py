"""Reports of the processes that a program starts by `multiprocessing` and that use a GPU.

Each has its own virtual GPUs, so each reports when it ends: on stderr, and in the JSON file if one
was requested and no other process has written it yet. A process that used no GPU prints nothing.
"""

from __future__ import annotations

import json
import multiprocessing.process
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from vramlab import catalogue, streams
from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.torch_internals import get_function_mode_stack, is_in_bad_fork
from vramlab.native.values import KnownValues
from vramlab.report.collect import (
    Ground,
    native_devices,
    native_ground,
    summarize,
    virtual_ground,
)
from vramlab.report.evidence.history_watch import HistoryWatch
from vramlab.report.evidence.watch import Watch
from vramlab.report.running.program import Ending
from vramlab.report.running.stopped import Stopped
from vramlab.report.showing.shown import as_shown

_HELPERS = ("torch", "joblib", "vramlab")
"""Packages whose processes are no part of a program's training."""

_SPAWNED = "torch.multiprocessing."
"""Where the functions are that `torch.multiprocessing.spawn` starts, each of which calls one of the
program's. On the portable engine, the first of them is the program itself."""


@dataclass(frozen=True)
class NativeGPUs:
    """What processes on the native engine find."""

    name: str
    """In the catalogue."""
    count: int
    """How many of it."""


class Processes:
    """Looks after `multiprocessing` while the body of the with statement runs.

    Args:
        command: the program's command line.
        most_steps: a process ends after so many training steps; None: when it has done its work.
        json_path: where the first of them to end writes its report as JSON; None: nowhere.
        native: the GPUs of the native engine; None: they are virtual ones.
    """

    def __init__(
        self,
        command: str,
        most_steps: int | None,
        json_path: str | None,
        native: NativeGPUs | None = None,
    ) -> None:
        self._native = native
        self._command = command
        self._most_steps = most_steps
        self._json_path = json_path
        self._patches = Patches()
        self._reported_folder = tempfile.TemporaryDirectory(prefix="vramlab-")

    def __enter__(self) -> Processes:
        start = multiprocessing.process.BaseProcess.start

        def start_reporting(process: Any) -> None:
            if is_of_program(process, native=self._native is not None):
                process.run = ReportingRun(
                    process,
                    self._command,
                    self._most_steps,
                    self._json_path,
                    self._reported_folder.name,
                    self._native,
                )
            start(process)

        self._patches.set(multiprocessing.process.BaseProcess, "start", start_reporting)
        return self

    def __exit__(self, *exception: object) -> None:
        self._patches.undo()
        self._reported_folder.cleanup()

    @property
    def reported(self) -> int:
        """How many have reported until now."""
        with suppress(FileNotFoundError):
            return len(os.listdir(self._reported_folder.name))
        return 0


def is_of_program(process: Any, native: bool = False) -> bool:
    """Return whether a process runs a function of the program's, or a class of it.

    Args:
        process: of `multiprocessing`.
        native: whether it runs on the native engine.
    """
    target = getattr(process, "_target", None)
    module = getattr(target or type(process), "__module__", None) or ""
    is_rank = native and module.startswith(_SPAWNED)
    return is_rank or module.partition(".")[0] not in _HELPERS


class ReportingRun:
    """What a process runs instead of its own `run`: that, and then the report."""

    def __init__(
        self,
        process: Any,
        command: str,
        most_steps: int | None,
        json_path: str | None,
        reported_folder: str,
        native: NativeGPUs | None = None,
    ) -> None:
        self._native = native
        self._process = process
        self._name = f"{command} ({process.name})"
        self._most_steps = most_steps
        self._json_path = json_path
        self._reported_folder = reported_folder

    def __call__(self) -> None:
        """Run the process's own function, in the process."""
        run: Callable[[Any], None] = type(self._process).run
        with ExitStack() as stack:
            if (watched := self._watched(stack)) is None:
                return run(self._process)
            began, ending = time.perf_counter(), Ending(0, None, {})
            try:
                run(self._process)
            except Stopped as stopped:
                ending = Ending(stopped.status, None, {}, stopped_by=stopped.by)
            except BaseException as error:
                ending = Ending(1, error, {})
                raise
            finally:
                if watched.is_used():
                    self._report(watched, ending, time.perf_counter() - began)
        return None

    def _watched(self, stack: ExitStack) -> _Watched | None:
        """Watch this process's GPUs until the stack ends; None: it has none."""
        if self._native is not None:
            return _watched_natively(self._native, self._most_steps, stack)
        if (gpu := ATTACHED.newest) is None:
            return None
        watch = stack.enter_context(Watch(gpu, self._most_steps))
        machine = gpu.machine
        return _Watched(
            watch,
            lambda: machine.is_used and not machine.is_in_bad_fork,
            lambda: virtual_ground(gpu, ""),
        )

    def _report(self, watched: _Watched, ending: Ending, seconds: float) -> None:
        watched.watch.look_everywhere()
        summary = summarize(
            watched.ground(), watched.watch, self._name, os.getcwd(), ending, seconds
        )
        with suppress(FileNotFoundError):  # the program has ended before
            open(os.path.join(self._reported_folder, str(os.getpid())), "x").close()
        if self._json_path is not None:
            with suppress(FileExistsError), open(self._json_path, "x", encoding="utf-8") as file:
                json.dump(summary.to_dict(), file, indent=2, ensure_ascii=False)
        streams.write(f"\n{as_shown(summary, sys.stderr)}\n", sys.stderr, sys.__stderr__)


@dataclass(frozen=True)
class _Watched:
    """The GPUs of a process that was started."""

    watch: Watch | HistoryWatch
    is_used: Callable[[], bool]
    ground: Callable[[], Ground]


def _watched_natively(
    gpus: NativeGPUs, most_steps: int | None, stack: ExitStack
) -> _Watched | None:
    if is_in_bad_fork():
        return None
    watch = stack.enter_context(HistoryWatch(gpus.count, most_steps=most_steps))
    inherited = (mode for mode in get_function_mode_stack() if isinstance(mode, KnownValues))
    if (values := next(inherited, None)) is None:
        values = stack.enter_context(KnownValues())
    model = catalogue.find(gpus.name)
    return _Watched(
        watch,
        lambda: any(device.context_bytes for device in native_devices(model, watch)),
        lambda: native_ground(model, watch, values, ""),
    )
