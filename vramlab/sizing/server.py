"""A process that imports PyTorch once and runs `vramlab run` in forks.

Importing takes a large part of a short run. Each run still has its own process, without state from
earlier runs. This works only for the virtual GPU, because the native engine chooses its GPU before
PyTorch is loaded, and only on systems with `os.fork`.

The process reads one JSON array per line, the arguments after `vramlab`, runs them, and writes a
JSON array with the exit status (negative: ended by a signal) and the end of stderr.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import NoReturn

_COMMAND = """
from vramlab import cli
from vramlab.sizing.server import serve

cli.parser()  # which imports every verb
serve(cli.main)
"""
_LAST_BYTES = 4096
_FAILED = 1


Main = Callable[[Sequence[str]], int]


class RunServer:
    """Runs commands in forks of one process while the body of the with statement runs."""

    def __enter__(self) -> RunServer:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _COMMAND],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        if kind is not None:
            self._process.terminate()  # it ends the run that is under way
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def run(self, words: Sequence[str]) -> tuple[int, str]:
        """Run `vramlab` with these arguments; return its exit status and the end of its stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([*words]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return _FAILED, "the worker process ended unexpectedly"
        answer = self._process.stdout.readline()
        if not answer:
            return _FAILED, "the worker process ended unexpectedly"
        status, said = json.loads(answer)
        return int(status), str(said)


def serve(main: Main) -> None:
    """Run what standard input says, until it ends.

    Args:
        main: runs `vramlab` with some words.
    """
    _import_everything()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the program as well, which ends
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    for line in sys.stdin:
        with tempfile.TemporaryFile() as said:
            status = _run_in_fork(main, json.loads(line), said.fileno())
            said.seek(max(0, said.seek(0, os.SEEK_END) - _LAST_BYTES))
            text = said.read().decode(errors="replace")
        answers.write(json.dumps([status, text]) + "\n")
        answers.flush()


def _import_everything() -> None:
    """Import what every run needs, also what PyTorch imports when it is first used."""
    import torch

    import vramlab.report.evidence.watch
    import vramlab.report.reporter
    import vramlab.report.running.overseer
    import vramlab.report.running.program  # noqa: F401  as vramlab.commands.run does
    from vramlab.gpu import VirtualGPU
    from vramlab.source_files import owner_of

    with suppress(ImportError):
        import numpy.random  # noqa: F401

    with VirtualGPU("T4"):
        weight = torch.nn.Parameter(torch.ones(2, 2, device="cuda"))
        optimizer = torch.optim.AdamW([weight])
        (weight @ weight).sum().backward()
        optimizer.step()
    for module in [*sys.modules.values()]:  # whose they are is remembered
        owner_of(getattr(module, "__file__", None) or "")
    del weight, optimizer
    gc.collect()
    gc.freeze()


def _run_in_fork(main: Main, words: Sequence[str], stderr: int) -> int:
    """Run a command in a fork, and return its exit status."""
    process = os.fork()
    if process == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _run(main, words, stderr)

    def pass_on(number: int, frame: object) -> None:
        os.kill(process, number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    finally:
        signal.signal(signal.SIGTERM, before)


def _run(main: Main, words: Sequence[str], stderr: int) -> NoReturn:
    """Become a process that runs a command, as if Python had been started for it."""
    import random

    import torch

    status = _FAILED
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for number, file in ((0, nowhere), (1, nowhere), (2, stderr)):
            os.dup2(file, number)
        sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
        random.seed()  # as in a new process: from the operating system
        torch.seed()
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed()
        sys.argv = ["vramlab", *words]
        sys.orig_argv = [sys.executable, "-m", "vramlab", *words]
        status = main(words)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else _FAILED
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        _leave(status)


def _leave(status: int) -> NoReturn:
    """End as Python does: handlers of `atexit` run, and everything is written."""
    import atexit

    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
    finally:
        os._exit(status)
