"""The judge's side of the bench: a process of the package's own, where everything is measured.

What a learner's kernel patched (torch, vramlab, builtins) is patched there, not here: the bench
starts from a fresh interpreter, and each job runs in a fork that has run nothing before.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import vramlab
from vramlab.errors import VramlabError
from vramlab.grading.task import Config, Exercise, Task

ANSWER_CPU_SECONDS = 10
"""An answer that computes longer than this does not end, as far as anybody can tell."""

TRIAL_CPU_SECONDS = 60
MEASURE_CPU_SECONDS = 120

TORCH_MODULES = ("torch", "torch._dynamo", "vramlab.virtual")
"""Imported once, before the fork. The first op under a torch function mode loads torch._dynamo."""


class BenchError(VramlabError):
    """A job could not be done, through no fault of the answer; the message says how it ended."""


class JobDied(BenchError):
    """The process of a job ended before it could reply."""


class JobLate(VramlabError):
    """A job computed longer than it may."""


class Bench:
    """Does jobs, one after another. Starts its process when the first job comes."""

    def __init__(self, command: Sequence[str] = (), search_path: Sequence[Path] = ()) -> None:
        """Prepare.

        Args:
            command: goes in front of the interpreter's command line: a sandbox, for example.
            search_path: where else the modules of exercises are looked for.
        """
        package = Path(vramlab.__file__).parents[1]
        self._command = [*command, sys.executable, "-P", "-m", "vramlab.grading.bench_server"]
        self._search_path = os.pathsep.join(map(str, [package, *search_path]))
        self._process: subprocess.Popen[bytes] | None = None

    def measure(self, exercise: Exercise, task: Task, config: Config) -> Mapping[str, Any]:
        """Measure the truth of one case: `arguments` (for the learner's function) and `truth`."""
        return self._do("measure", exercise, task, MEASURE_CPU_SECONDS, config=dict(config))

    def find(self, exercise: Exercise, task: Task, cells: Sequence[str]) -> Mapping[str, Any]:
        """Find the answer in the sources of cells: its `source`, or the `problem` with it."""
        return self._do("find", exercise, task, ANSWER_CPU_SECONDS, cells=list(cells))

    def answers(
        self, exercise: Exercise, task: Task, source: str, calls: Sequence[Config]
    ) -> list[Mapping[str, Any]]:
        """Ask an answer for each of `calls`: exact `type` and plain `value`, or a `problem`."""
        arguments = {"source": source, "calls": [dict(call) for call in calls]}
        reply = self._do("answer", exercise, task, ANSWER_CPU_SECONDS, **arguments)
        outcomes: list[Mapping[str, Any]] = reply["outcomes"]
        return outcomes

    def trial(
        self, exercise: Exercise, task: Task, source: str, config: Config
    ) -> Mapping[str, Any]:
        """Run a repaired program on one case: what it `achieved`, or the `problem` it has."""
        arguments = {"source": source, "config": dict(config)}
        return self._do("trial", exercise, task, TRIAL_CPU_SECONDS, **arguments)

    def call(self, module: str, function: str, *, cpu_seconds: int, **arguments: Any) -> Any:
        """Call a function of a module with data; it answers a mapping that JSON can carry.

        The module is imported once, before the fork: for what must be done within limits, again
        and again, and is no exercise's.
        """
        request = {
            "job": "call",
            "module": module,
            "function": function,
            "arguments": arguments,
            "preload": [module],
            "cpu_seconds": cpu_seconds,
        }
        return self._done(request)

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            # A request that was never read is lost with its process.
            with contextlib.suppress(BrokenPipeError), process:
                pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _do(
        self, job: str, exercise: Exercise, task: Task, cpu_seconds: int, **arguments: Any
    ) -> Mapping[str, Any]:
        with_torch = job in ("measure", "trial")
        request = {
            "job": job,
            "module": exercise.module,
            "task": task.name,
            "preload": list(TORCH_MODULES) if with_torch else [],
            "cpu_seconds": cpu_seconds,
            **arguments,
        }
        return self._done(request)

    def _done(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        reply = self._ask(json.dumps(request).encode() + b"\n")
        if "done" in reply:
            done: Mapping[str, Any] = reply["done"]
            return done
        if "late" in reply:
            raise JobLate(f"it did not end within {reply['late']} seconds of computing")
        if "died" in reply:
            raise JobDied(f"its process ended with {reply['died']}")
        raise BenchError(f"the bench failed at it:\n{reply['failed']}")

    def _ask(self, request: bytes) -> Mapping[str, Any]:
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        line = b""
        try:
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(request)
                process.stdin.flush()
                line = process.stdout.readline()
        finally:
            # Also after an interrupt: a late reply must not be taken for the next one.
            if not line:
                self.close()
        if not line:
            raise BenchError("the bench's process ended")
        reply: Mapping[str, Any] = json.loads(line)
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tempfile.gettempdir(),
            env={**_neutral_environment(), "PYTHONPATH": self._search_path},
            start_new_session=True,
        )
        return self._process


def _neutral_environment() -> dict[str, str]:
    """Leave out the variables that change what is measured: a grade depends on no machine.

    One thread, because sums in another order give other results, and because threads that wait for
    each other use up a job's CPU time.
    """
    changing = ("CUDA", "PYTORCH", "TORCH", "VRAMLAB")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(changing)}
    return {**kept, "OMP_NUM_THREADS": "1"}
