"""Run a script or a module as `python` runs it, and report how it ended."""

from __future__ import annotations

import builtins
import io
import os
import runpy
import shlex
import sys
import threading
import zipfile
from collections.abc import Iterator, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType, TracebackType
from typing import Any

from vramlab.errors import OutOfDeviceMemory
from vramlab.report.running.stopped import Stopped
from vramlab.source_files import CodeOwner, owner_of
from vramlab.streams import print_error

_EXIT_ERROR = 1
_EXIT_INTERRUPTED = 130


@dataclass(frozen=True)
class Ending:
    """How a program ended."""

    status: int
    """Its exit status."""
    error: BaseException | None
    """What it raised and did not catch; None also for sys.exit()."""
    namespace: dict[str, Any]
    """Its global variables, if it came to its end; they keep alive what it made."""
    stopped_by: str | None = None
    """What ended it before its time: the option `--steps` or `--seconds`, a signal such as
    `SIGTERM`, or `os._exit`."""
    stuck_at: str | None = None
    """The line at which it stood when the process was ended in its place."""
    stopped: Stopped | None = None
    """What ended it. The overseer raises it again only after it has been garbage-collected."""


@dataclass(frozen=True)
class Program:
    """A Python program with its arguments."""

    name: str
    """Path of a script (or of a folder or zip file with `__main__.py`), or name of a module."""
    arguments: tuple[str, ...] = ()
    """What it finds in sys.argv after its own name."""
    is_module: bool = False
    """Whether it is meant as in `python -m name`."""

    @property
    def command(self) -> str:
        """What stands behind `python` to run it."""
        return shlex.join([*(["-m"] if self.is_module else []), self.name, *self.arguments])

    def run(self) -> Ending:
        """Run it as `__main__`.

        An exception that it does not catch is printed as python would, without vramlab's own
        frames, and is in the `Ending`; nothing is raised. As python does, it waits for the threads
        that the program has started.
        """
        before = set(threading.enumerate())
        with _command_line_of(self):
            ending = self._run()
            try:
                if ending.stopped_by is None:
                    _wait_for_threads(before)
            except Stopped as stopped:
                return replace(ending, **_stopped(stopped))
            except KeyboardInterrupt as error:
                return replace(ending, status=_show(error), error=error)
        return ending

    def _run(self) -> Ending:
        try:
            if self.is_module:
                namespace = runpy.run_module(self.name, run_name="__main__", alter_sys=True)
            elif os.path.isdir(self.name) or zipfile.is_zipfile(self.name):
                namespace = runpy.run_path(self.name, run_name="__main__")
            else:
                namespace = _run_file(self.name)
        except SystemExit as leaving:
            return Ending(_status_of(leaving), None, {})
        except Stopped as stopped:
            return Ending(error=None, namespace={}, **_stopped(stopped))
        except BaseException as error:
            return Ending(_show(error), error, {})
        return Ending(0, None, namespace)


def _stopped(by: Stopped) -> dict[str, Any]:
    """Return how a program was stopped; nothing of it is kept alive."""
    return {"status": by.status, "stopped_by": by.by, "stopped": by.with_traceback(None)}


def _wait_for_threads(before: Set[threading.Thread]) -> None:
    """Wait for what pools of threads have to do, and then for other threads that are no daemons.

    Source: `_shutdown` in Lib/threading.py and `_python_exit` in Lib/concurrent/futures/thread.py,
    CPython 3.11. A pool's threads end only when they see its module's flag.
    """
    pools: Any = sys.modules.get("concurrent.futures.thread")
    try:
        if pools is not None:
            pools._python_exit()
        while ours := [
            thread
            for thread in threading.enumerate()
            if not thread.daemon and thread not in before and thread.is_alive()
        ]:
            for thread in ours:
                thread.join()
    finally:
        if pools is not None:
            pools._shutdown = False


def _run_file(path: str) -> dict[str, Any]:
    """Run a file as `python path` does: like runpy, but sys.argv[0] stays as it was given."""
    module = ModuleType("__main__")
    module.__file__ = os.path.abspath(path)
    module.__dict__["__builtins__"] = builtins
    main_before = sys.modules["__main__"]
    sys.modules["__main__"] = module
    try:
        with io.open_code(module.__file__) as file:
            code = compile(file.read(), module.__file__, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    finally:
        sys.modules["__main__"] = main_before
    return module.__dict__


@contextmanager
def _command_line_of(program: Program) -> Iterator[None]:
    """Give the program the sys.argv and sys.path that python would; undone afterwards.

    Its own folder (the current one for a module) comes first in sys.path, instead of
    vramlab's command, unless python runs with `-P`.
    """
    argv, path = sys.argv, sys.path[:]
    sys.argv = [program.name, *program.arguments]
    if not sys.flags.safe_path:
        sys.path[0] = _folder_of(program)
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _folder_of(program: Program) -> str:
    if program.is_module:
        return os.getcwd()
    path = os.path.abspath(program.name)
    return path if os.path.isdir(path) or zipfile.is_zipfile(path) else os.path.dirname(path)


def _status_of(leaving: SystemExit) -> int:
    """Return the exit status that python makes of sys.exit(code); words are printed, and mean 1."""
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code
    print_error(str(leaving.code))
    return _EXIT_ERROR


def _show(error: BaseException) -> int:
    """Print an uncaught exception as python does; return the exit status.

    Source: `_PyErr_PrintEx` in Python/pythonrun.c, CPython 3.11, for what a hook may do.
    """
    as_python_shows(error)
    try:
        sys.excepthook(type(error), error, error.__traceback__)
    except SystemExit as leaving:
        return _status_of(leaving)
    except BaseException as second:
        second.__context__ = None  # it is no consequence of the first, which is shown below
        as_python_shows(second)
        print_error("Error in sys.excepthook:")
        sys.__excepthook__(type(second), second, second.__traceback__)
        print_error("\nOriginal exception was:")
        sys.__excepthook__(type(error), error, error.__traceback__)
    return _EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else _EXIT_ERROR


def as_python_shows(error: BaseException) -> None:
    """Leave of an exception's tracebacks what python would show had a real GPU run the program.

    Frames of vramlab and of runpy go, from every exception of the chain, and so does the virtual
    allocator's own exception behind torch.OutOfMemoryError.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        current.__traceback__ = _without_machinery(current.__traceback__)
        if isinstance(current.__cause__, OutOfDeviceMemory):
            current.__cause__ = None
        current = current.__cause__ or current.__context__


def _without_machinery(traceback: TracebackType | None) -> TracebackType | None:
    if traceback is None:
        return None
    rest = _without_machinery(traceback.tb_next)
    filename = traceback.tb_frame.f_code.co_filename
    if owner_of(filename) is CodeOwner.VRAMLAB or filename == "<frozen runpy>":
        return rest
    return TracebackType(rest, traceback.tb_frame, traceback.tb_lasti, traceback.tb_lineno)
