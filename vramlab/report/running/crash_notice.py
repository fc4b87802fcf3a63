"""Say what happened to a program that died where no Python code could report it.

A segmentation fault, an abort in C++ code, or a SIGKILL of a system that is out of memory ends a
process immediately. A small second process notices: it reads a pipe that the program's process
writes to until that process ends. The program's exit status does not change.

Python's `faulthandler` writes to that pipe which signal it was, and on which line Python was.
"""

from __future__ import annotations

import faulthandler
import os
import re
import subprocess
import sys
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

from vramlab.gpu.core.patching.patches import Patches
from vramlab.source_files import CodeOwner, owner_of, shown_name

_DONE = b"\2"
_STATE = re.compile(rb"\x01([^\x01\x03]*)\x03")

_READER = """
import os, sys
if hasattr(os, "fork") and os.fork():
    os._exit(0)
data = b""
while chunk := sys.stdin.buffer.raw.read(65536):
    data = data[-{most}:] + chunk
    if {done!r} in chunk:
        os._exit(0)
sys.path.insert(0, {home!r})
from vramlab.report.running.crash_notice import notice
sys.stderr.write(notice(data, {folder!r}))
"""
"""What the second process runs. It leaves its parent, whose children are the program's alone."""

_MOST_BYTES = 2**16

_FAULT = re.compile(r"Fatal Python error: ([^\n]*)")
_FRAME = re.compile(r'File "([^"\n]*)", line (\d+) in ([^\n]*)')
_SIGNALS = {
    "Segmentation fault": "SIGSEGV",
    "Aborted": "SIGABRT",
    "Bus error": "SIGBUS",
    "Floating-point exception": "SIGFPE",
    "Floating point exception": "SIGFPE",
    "Illegal instruction": "SIGILL",
}
"""What `faulthandler` calls signals. Source: Modules/faulthandler.c, CPython 3.11 and 3.14."""

_BEFORE_IT = (
    "For a report of the time before the crash, stop the program earlier, with --steps N or "
    "--seconds S."
)


class CrashNotice:
    """Prints a notice if this process dies in the body of the with statement.

    Args:
        stream: where the notice is printed; nothing is where that is no file of the system.
        folder: where the program was started.
    """

    def __init__(self, stream: Any, folder: str) -> None:
        self._stream = stream
        self._folder = folder
        self._pipe: int | None = None
        self._last = b""
        self._handles_faults = False
        self._patches = Patches()

    def __enter__(self) -> CrashNotice:
        try:
            number = self._stream.fileno()
            reader = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", self._program()],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=number,
                start_new_session=True,
            )
        except (AttributeError, OSError, ValueError):
            return self
        assert reader.stdin is not None
        self._pipe = os.dup(reader.stdin.fileno())
        reader.stdin.close()
        if hasattr(os, "fork"):
            reader.wait()  # the one that stays is not its child
        with suppress(OSError):
            os.set_blocking(self._pipe, False)
        if not faulthandler.is_enabled():
            faulthandler.enable(self._pipe, all_threads=False)
            self._handles_faults = True
        for name in ("execv", "execve"):  # which end no program: it goes on as another one
            self._patches.set(os, name, self._closing_before(getattr(os, name)))
        _open.add(self)
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def update(self, state: str) -> None:
        """Remember how far the program is."""
        line = b"\1" + state.encode(errors="replace") + b"\3"
        if line != self._last:
            self._last = line
            self._write(line)

    def close(self) -> None:
        """Note that there will be no notice: the program has its report. Twice is harmless."""
        self._write(_DONE)
        self.abandon()

    def abandon(self) -> None:
        """Leave the pipe to the process that this one was forked of."""
        _open.discard(self)
        self._patches.undo()
        if self._pipe is not None:
            if self._handles_faults:
                faulthandler.disable()
            os.close(self._pipe)
            self._pipe = None

    def _write(self, data: bytes) -> None:
        if self._pipe is not None:
            with suppress(OSError):
                os.write(self._pipe, data)

    def _closing_before(self, execute: Any) -> Any:
        def close_and_execute(*args: Any) -> Any:
            self.close()
            return execute(*args)

        return close_and_execute

    def _program(self) -> str:
        home = str(Path(__file__).parents[3])
        return _READER.format(done=_DONE, most=_MOST_BYTES, home=home, folder=self._folder)


_open: weakref.WeakSet[CrashNotice] = weakref.WeakSet()


def _abandon_all() -> None:
    for each in list(_open):
        each.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)


def notice(data: bytes, folder: str) -> str:
    """Write the notice.

    Args:
        data: what the process had written when it died.
        folder: where the program was started.
    """
    states = _STATE.findall(data)
    text = _STATE.sub(b"", data).decode(errors="replace")
    until_then = states[-1].decode(errors="replace") if states else "no GPU use was observed"
    return f"\nvramlab: {_what_happened(text, folder)}\nUntil then: {until_then}.\n{_BEFORE_IT}\n"


def _what_happened(text: str, folder: str) -> str:
    fault = _FAULT.search(text)
    if fault is None:
        return (
            "the process died without a report. If there is no error message above, it was killed "
            "by SIGKILL, which Linux sends when host memory runs out: check `dmesg`."
        )
    name = _SIGNALS.get(fault[1], "")
    line = next(
        (
            f"{shown_name(file, folder)}:{number} in {function}"
            for file, number, function in _FRAME.findall(text)
            if owner_of(file) is CodeOwner.PROGRAM
        ),
        None,
    )
    where = f" at {line}" if line else ""
    return (
        f"the program crashed{where}: {fault[1]}{f' ({name})' if name else ''}. Such crashes "
        "happen in C or C++ code, so there is no report."
    )
