"""The judge's side of the job pool: processes of the package's own, where everything is done.

What a learner's kernel patched (torch, vramlab, builtins) is patched there, not here: the pool
starts from fresh interpreters, and each job runs in a fork that has run nothing before. One process
measures, tries repairs and reads notebooks (`job_server.py`). Answers in plain Python run in
another one, which has never seen a measurement (`sandbox/plain_answers.py`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from vramlab.context import Closing
from vramlab.errors import VramlabError
from vramlab.units import GIB, MIB
from vramlab_classroom.judge import replies, warm_job_server
from vramlab_classroom.judge.task import Config, Diagnose, Exercise, Task, runs_in_ranks
from vramlab_classroom.sandbox import packages
from vramlab_classroom.sandbox.frames import read_frame, write_frame
from vramlab_classroom.sandbox.job_limits import JobSpec, Limits

ANSWER_SECONDS = 10
"""An answer that takes longer than this does not end, as far as anybody can tell."""

FIND_CPU_SECONDS = 10

TRIAL_CPU_SECONDS = 60
MEASURE_CPU_SECONDS = 120
MEASURE_REPLY_BYTES = 64 * MIB

JOB_MEMORY_BYTES = 4 * GIB
"""What a job may take beyond what the pool holds."""

TORCH_MODULES = ("torch", "vramlab.gpu", "vramlab_course.tasks.preloaded")
"""Imported once, before the fork."""

SERVER = "vramlab_classroom.judge.job_server"
PLAIN_SERVER = "vramlab_classroom.sandbox.plain_answers"

LIBRARIES = re.compile(r"\b(?:numpy|torch|pandas|scipy|sympy|tqdm)\b")
"""What answers in plain Python may import besides the standard library: had before the fork. All
but NumPy make forks slow, so that answers that name them have a process of their own."""

WALL_TO_CPU = 4
SPARE_WALL_SECONDS = 20
"""A job may take so much longer than its CPU time before it is given up: machines are shared."""

KEPT_VARIABLES = (
    *("PATH", "HOME", "TMPDIR", "LANG", "LC_", "TZ", "LD_LIBRARY_PATH", "DYLD_"),
    *("DOCKER_", "CONTAINER", "XDG_RUNTIME_DIR"),  # how to reach the engine of containers
    *("SYSTEMROOT", "TEMP", "TMP", "USERPROFILE"),  # what Windows cannot do without
)
"""The variables, by the beginnings of their names, that a pool shares with the judge."""

CLOSING_SECONDS = 2
"""Grace period of a pool whose judge has ended; afterwards it is killed."""


class JobPoolError(VramlabError):
    """A job could not be done, through no fault of the answer; the message says how it ended."""


class JobDied(JobPoolError):
    """The process of a job ended before it could reply."""

    def __init__(self, message: str, is_of_answer: bool = True) -> None:
        super().__init__(message)
        self.is_of_answer = is_of_answer
        """It was the answer that ran in it, if one did; otherwise the machine may have been short
        of memory."""

    def as_problem(self) -> Mapping[str, Any]:
        """Return the problem of the answer that has ended its process.

        Raises:
            JobDied: it may have been the machine.
        """
        if not self.is_of_answer:
            raise self
        return {"problem": f"No answer: {self}."}


class JobLate(VramlabError):
    """A job computed longer than it may."""


class JobPool(Closing):
    """Does jobs, one after another. Starts its process when the first job comes."""

    def __init__(self, command: Sequence[str] = (), search_path: Sequence[Path] = ()) -> None:
        """Prepare.

        Args:
            command: starts a Python interpreter, in a sandbox for example (see
                `vramlab_classroom.sandbox.bubblewrap`); by default this one, without any.
            search_path: where else the modules of exercises are looked for.
        """
        python = list(command) or [sys.executable]
        path = [f"{folder}" for folder in packages.search_path()]
        self._server = _Server(python, SERVER, [*path, *map(str, search_path)], may_be_forked=True)
        self._plain = {heavy: _Server(python, PLAIN_SERVER, path) for heavy in (False, True)}
        self._imported: tuple[str, ...] = ()

    def measure(
        self, exercise: Exercise, task: Task, configs: Sequence[Config]
    ) -> list[Mapping[str, Any]]:
        """Measure the truths of some cases, each with `arguments` for the learner's function.

        One process measures all of them, each on a GPU of its own. What measuring imports, which
        runs no learner's code, is there for all later ones.
        """
        limits = _limits(MEASURE_CPU_SECONDS * len(configs))
        reply_bytes = MEASURE_REPLY_BYTES * len(configs)
        trusted = replace(limits, is_trusted=True, reply_bytes=reply_bytes)
        order = JobSpec(trusted, TORCH_MODULES + self._imported)
        reply: dict[str, Any] = self._do("measure", exercise, task, order, configs=configs)
        self._imported += tuple(reply["imported"])
        measured: list[Mapping[str, Any]] = reply["measured"]
        return measured

    def find(
        self, cells: Mapping[str, Sequence[str]], rights: Mapping[str, str] | None = None
    ) -> dict[str, Mapping[str, Any]]:
        """Find answers: of each the `source`, or the `problem` with it.

        Args:
            cells: by the name of each task, the sources of the cells to look in.
            rights: right answers that others may build on; see `follow_through.py`.
        """
        order = JobSpec(_limits(FIND_CPU_SECONDS))
        try:
            reply = self._done({"job": "find", "cells": cells, "rights": dict(rights or {})}, order)
            with _any_reply():
                return {task: replies.found(reply[task]) for task in cells}
        except JobDied as death:
            if len(cells) > 1:
                raise  # it is unknown whose cells it was
            return dict.fromkeys(cells, death.as_problem())

    def answers(
        self, exercise: Exercise, task: Task, source: str, calls: Sequence[Config]
    ) -> list[Mapping[str, Any]]:
        """Ask an answer for each of `calls`: exact `type` and plain `value`, or a `problem`.

        It runs as ordinary Python in a process that has neither measured nor seen what is right.
        """
        named = frozenset(re.findall(LIBRARIES, source))
        limits = replace(_limits(ANSWER_SECONDS), wall_seconds=ANSWER_SECONDS, is_plain=True)
        job = {
            "source": source,
            "name": task.name,
            "is_value": isinstance(task, Diagnose) and task.is_value,
            "calls": calls,
        }
        server = self._plain[bool(named - {"numpy"})]
        try:
            reply = self._done(job, JobSpec(limits, tuple(sorted(named))), server)
            with _any_reply():
                return replies.outcomes(reply, len(calls))
        except JobDied as death:
            return [death.as_problem()] * len(calls)

    def trial(
        self, exercise: Exercise, task: Task, source: str, config: Config
    ) -> Mapping[str, Any]:
        """Run a repaired program on one case: what it `achieved`, or the `problem` it has."""
        in_ranks = runs_in_ranks(task)
        limits = replace(_limits(TRIAL_CPU_SECONDS), runs_torch=True, starts_ranks=in_ranks)
        ours = {"module": exercise.module, "task": task.name, "config": config}
        order = JobSpec(limits, TORCH_MODULES + self._imported, ours)
        try:
            reply = self._do("trial", exercise, task, order, source=source, config=config)
            with _any_reply():
                return replies.trial(reply)
        except JobDied as death:
            return death.as_problem()

    def call(
        self,
        module: str,
        function: str,
        *,
        cpu_seconds: int,
        reply_bytes: int,
        arguments: Mapping[str, Any],
    ) -> Any:
        """Call a function of a module within limits; it takes and gives what JSON can carry.

        For those who build upon grading. The module is imported before the fork, and kept. What
        comes back is as credible as what went in: the function may have been led astray by data.
        """
        limits = replace(_limits(cpu_seconds), reply_bytes=reply_bytes)
        request = {"job": "call", "module": module, "function": function, "arguments": arguments}
        return self._done(request, JobSpec(limits, (module,)))

    def close(self) -> None:
        """End the processes that there are."""
        for server in (self._server, *self._plain.values()):
            server.close()

    def _do(
        self, job: str, exercise: Exercise, task: Task, order: JobSpec, **arguments: Any
    ) -> Any:
        request = {"job": job, "module": exercise.module, "task": task.name, **arguments}
        return self._done(request, order)

    def _done(
        self, request: Mapping[str, Any], order: JobSpec, server: _Server | None = None
    ) -> Any:
        asked = json.dumps(request, default=dict).encode()
        end, payload = (server or self._server).ask(order.as_data(), asked)
        match end["ended"]:
            case "late":
                raise JobLate(f"it did not end within {end['how']}")
            case "died":
                is_of_answer = end["how"] != "SIGKILL"  # the machine may have been out of memory
                raise JobDied(f"its process ended with {end['how']}", is_of_answer)
            case "failed":
                raise JobPoolError(f"the judge's process failed at it:\n{end['how']}")
        with _any_reply():
            reply = json.loads(payload)
            if "failed" in reply:
                failure = replies.printable(f"{reply['failed']}")
                raise JobPoolError(f"the judge's process failed at it:\n{failure}")
            return reply["done"]


class _Server(Closing):
    """A process that does jobs, started when the first one comes."""

    def __init__(
        self,
        python: Sequence[str],
        module: str,
        search_path: Sequence[str],
        *,
        may_be_forked: bool = False,
    ) -> None:
        self._command = [*python, "-P", "-m", module]
        self._search_path = search_path
        self._may_be_forked = may_be_forked and python == [sys.executable]
        self._process: _Started | _Forked | None = None

    def ask(self, order: bytes, request: bytes) -> tuple[Mapping[str, Any], bytearray]:
        """Let a job be done; give how it ended, and what it replied."""
        process = self._process = self._process or self._start()
        end = payload = None
        facts: dict[str, Any] = {"last": True}
        try:
            with contextlib.suppress(BrokenPipeError):
                write_frame(process.requests, order)
                write_frame(process.requests, request)
                end = read_frame(process.replies)
                payload = read_frame(process.replies)
                if end is not None and payload is not None:
                    facts = json.loads(end)
        finally:
            # Also after an interrupt: a late reply must not be taken for the next one.
            if facts["last"]:
                self.close()
        if payload is None:
            raise JobPoolError("the judge's process ended")
        return facts, payload

    def close(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.close()

    def _start(self) -> _Started | _Forked:
        address = os.environ.get(warm_job_server.VARIABLE)
        if address and self._may_be_forked:
            with contextlib.suppress(OSError):  # the process that sent them has ended
                return _Forked(address, self._search_path)
        return _Started(self._command, self._search_path)


class _Started(Closing):
    """A pool's process that was started for it."""

    def __init__(self, command: Sequence[str], search_path: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tempfile.gettempdir(),
            env={**neutral_environment(), "PYTHONPATH": os.pathsep.join(search_path)},
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self.requests = self._process.stdin.fileno()
        self.replies = self._process.stdout.fileno()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(CLOSING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
        finally:
            with self._process:
                pass


class _Forked(Closing):
    """A pool's process that was forked of one which has imported everything already."""

    def __init__(self, address: str, search_path: Sequence[str]) -> None:
        self._connection = warm_job_server.connect(address)
        self.requests = self.replies = self._connection.fileno()
        write_frame(self.requests, json.dumps(search_path).encode())

    def close(self) -> None:
        self._connection.close()  # by which it ends


def _limits(cpu_seconds: int) -> Limits:
    wall_seconds = cpu_seconds * WALL_TO_CPU + SPARE_WALL_SECONDS
    return Limits(cpu_seconds, wall_seconds, JOB_MEMORY_BYTES)


@contextlib.contextmanager
def _any_reply() -> Iterator[None]:
    """Take what cannot be read for a job that died: code that broke out may have written it."""
    try:
        yield
    except (ValueError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise JobDied("its process gave something that is no reply") from error


def neutral_environment() -> dict[str, str]:
    """Return the variables that a pool gets: a grade depends on no machine.

    The few that interpreters and sandboxes need, so neither settings that change what is measured
    nor anybody's passwords. No library of this machine is queried (docs/native.md describes
    VRAMLAB_CUDNN). One thread, because sums in another order give other results, and
    because threads that wait for each other use up a job's CPU time. Large pages for large tensors
    (PyTorch's `c10/core/impl/alloc_cpu.cpp`), because each job begins with memory that it has not
    touched. MKL keeps no buffers for each thread: in a fork of a process that had others, its
    search for those of this thread may not end (MKL of PyTorch 2.13, `mm_account_ptr_by_tid`).
    """
    kept = {name: value for name, value in os.environ.items() if name.startswith(KEPT_VARIABLES)}
    return {
        **kept,
        "VRAMLAB_CUDNN": "table",
        "OMP_NUM_THREADS": "1",
        "THP_MEM_ALLOC_ENABLE": "1",
        "MKL_DISABLE_FAST_MM": "1",
    }
