"""Reports of the processes that a program starts by `multiprocessing` and that use a GPU.

Each has virtual GPUs of its own, so each tells of itself when it ends: on stderr, and in the file
of the report as JSON if that of the program is to be written and nobody has told yet. Processes
that PyTorch and the standard library start to load data are left alone.
"""

from __future__ import annotations

import json
import multiprocessing.process
import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vramlab import streams
from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.gpu.core.patches import Patches
from vramlab.report.collect import summarize, virtual_ground
from vramlab.report.program import Ending
from vramlab.report.shown import as_shown
from vramlab.report.stopped import Stopped
from vramlab.report.watch import Watch

_HELPERS = ("torch", "multiprocessing", "concurrent", "joblib", "vramlab")
"""Packages whose processes are no part of a program's training."""


class Processes:
    """Looks after `multiprocessing` while the body of the with statement runs.

    Args:
        command: the program's command line.
        most_steps: a process ends after so many training steps; None: when it has done its work.
        json_path: where the first of them to end writes its report as JSON; None: nowhere.
    """

    def __init__(self, command: str, most_steps: int | None, json_path: str | None) -> None:
        self._command = command
        self._most_steps = most_steps
        self._json_path = json_path
        self._patches = Patches()
        self._told = tempfile.TemporaryDirectory(prefix="vramlab-")

    def __enter__(self) -> Processes:
        start = multiprocessing.process.BaseProcess.start

        def start_reporting(process: Any) -> None:
            if is_of_program(process):
                process.run = ReportingRun(
                    process, self._command, self._most_steps, self._json_path, self._told.name
                )
            start(process)

        self._patches.set(multiprocessing.process.BaseProcess, "start", start_reporting)
        return self

    def __exit__(self, *exception: object) -> None:
        self._patches.undo()
        self._told.cleanup()

    @property
    def reported(self) -> int:
        """How many have reported until now."""
        with suppress(FileNotFoundError):
            return len(os.listdir(self._told.name))
        return 0


def is_of_program(process: Any) -> bool:
    """Tell whether a process runs a function of the program's, or a class of it."""
    target = getattr(process, "_target", None)
    module = getattr(target or type(process), "__module__", None) or ""
    return module.partition(".")[0] not in _HELPERS


class ReportingRun:
    """What a process runs in place of its own `run`: that, and then the report."""

    def __init__(
        self, process: Any, command: str, most_steps: int | None, json_path: str | None, told: str
    ) -> None:
        self._process = process
        self._name = f"{command} ({process.name})"
        self._most_steps = most_steps
        self._json_path = json_path
        self._told = told

    def __call__(self) -> None:
        """Run the process's own function, in the process."""
        run: Callable[[Any], None] = type(self._process).run
        if (gpu := ATTACHED.newest) is None:
            return run(self._process)
        watch, began = Watch(gpu, self._most_steps), time.perf_counter()
        ending = Ending(0, None, {})
        with watch:
            try:
                run(self._process)
            except Stopped as stopped:
                ending = Ending(stopped.status, None, {}, stopped_by=stopped.by)
            except BaseException as error:
                ending = Ending(1, error, {})
                raise
            finally:
                if gpu.machine.is_used and not gpu.machine.is_in_bad_fork:
                    self._report(gpu, watch, ending, time.perf_counter() - began)
        return None

    def _report(self, gpu: Any, watch: Watch, ending: Ending, seconds: float) -> None:
        watch.look_everywhere()
        summary = summarize(
            virtual_ground(gpu, ""), watch, self._name, os.getcwd(), ending, seconds
        )
        with suppress(FileNotFoundError):  # the program has ended before
            open(os.path.join(self._told, str(os.getpid())), "x").close()
        if self._json_path is not None:
            with suppress(FileExistsError), open(self._json_path, "x", encoding="utf-8") as file:
                json.dump(summary.to_dict(), file, indent=2, ensure_ascii=False)
        streams.write(f"\n{as_shown(summary, sys.stderr)}\n", sys.stderr, sys.__stderr__)
