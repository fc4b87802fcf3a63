"""See to it that a run ends in time and with a report, and say meanwhile how far it is.

A program may be told to end (SIGTERM, SIGINT, SIGHUP, `--seconds`), leave by `os._exit`, or be
stuck where no Python code runs, as in C++ code that waits for another process. A thread looks after
it:

- Signals raise `Stopped`, or KeyboardInterrupt, in the main thread, so that `finally` blocks run. A
  program that handles them itself is left to do so.
- An exception that got lost on the way (one in a destructor does) is raised again.
- If the program has not ended some seconds later, the thread gives the report and ends the process.

In processes that the program forks, nothing of this is there.
"""

from __future__ import annotations

import _thread
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any

from vramlab import streams
from vramlab.gpu.core.patching.patches import Patches
from vramlab.gpu.core.stack_frames import user_line
from vramlab.report.running.crash_notice import CrashNotice
from vramlab.report.running.program import Ending, Program
from vramlab.report.running.stopped import Stopped

FIRST_LINE_SECONDS = 5.0
"""When the first line of progress is written. The next come after twice the time, each."""

_LONGEST_PAUSE_SECONDS = 60.0
_TICK_SECONDS = 0.2
_GRACE_SECONDS = 10.0
"""How long a program may take to end after a signal."""

_TIME_IS_UP: int | None = getattr(signal, "SIGVTALRM", None)
"""By which the thread interrupts the main thread: a real signal, so that a sleep ends. Programs do
not use it. Windows has none: there, Python pretends one, which it sees when a sleep has ended."""

_ENDING = tuple(
    getattr(signal, name) for name in ("SIGTERM", "SIGHUP", "SIGINT") if hasattr(signal, name)
)
_EXIT_SIGNAL = 128
"""What shells add to a signal's number."""


class Overseer:
    """Looks after one program while the body of the with statement runs.

    Args:
        report: gives the report of a program that has ended so. It is called once.
        progress: says in a line how far the program is.
        stream: where lines of progress are written.
        seconds: end the program after so many; None: never.
        notice: receives how far the program is, and that it has its report.
    """

    def __init__(
        self,
        report: Callable[[Ending], None],
        progress: Callable[[], str],
        stream: Any,
        seconds: float | None = None,
        notice: CrashNotice | None = None,
    ) -> None:
        self._notice = notice
        self._report = report
        self._progress = progress
        self._stream = stream
        self._limit_seconds = seconds
        self._began: float | None = None
        self._over = threading.Event()
        self._reporting = threading.Lock()
        self._is_reported = False
        self._patches = Patches()
        self._handlers: dict[int, Any] = {}
        self._wakeup: int | None = None  # what was there before; None: this changed nothing
        self._stop_request: Stopped | None = None
        self._raised: weakref.ref[Stopped] | None = None
        self._stop_requested_at = 0.0
        self._received_last: tuple[int, float] | None = None
        self._thread = threading.Thread(target=self._look_after, daemon=True)
        # The C code that receives a signal writes a byte there, whatever the main thread does.
        self._received, self._receiver = socket.socketpair()

    def __enter__(self) -> Overseer:
        self._exit = os._exit
        self._process_id = os.getpid()
        self._patches.set(os, "_exit", self._leave)
        self._received.setblocking(False)
        self._receiver.setblocking(False)
        if threading.current_thread() is threading.main_thread():
            defaults = (signal.SIG_DFL, signal.default_int_handler)
            for number in filter(None, (*_ENDING, _TIME_IS_UP)):
                if signal.getsignal(number) in defaults:
                    self._handlers[number] = signal.signal(number, self._on_signal)
            self._wakeup = signal.set_wakeup_fd(self._receiver.fileno(), warn_on_full_buffer=False)
        _active.append(self)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._over.set()
        self._thread.join()
        self.withdraw()
        self._received.close()
        self._receiver.close()

    def withdraw(self) -> None:
        """Put back signal handlers and `os._exit`."""
        self._is_reported = True
        if self in _active:
            _active.remove(self)
            self._patches.undo()
            self._restore_wakeup()
            for number, handler in self._handlers.items():
                if signal.getsignal(number) == self._on_signal:
                    signal.signal(number, handler)

    def _restore_wakeup(self) -> None:
        """Put back the file that signals are written to, unless the program has set another."""
        if self._wakeup is not None:
            current = signal.set_wakeup_fd(self._wakeup)
            if current != self._receiver.fileno():
                signal.set_wakeup_fd(current)
            self._wakeup = None

    def run(self, program: Program) -> Ending:
        """Run a program, and give its report. Its time begins now, and until now signals are fatal.

        Args:
            program: to run.
        """
        self._began = time.monotonic()
        ending = program.run()
        self.tell(ending)
        return ending

    def tell(self, ending: Ending) -> None:
        """Give the report, unless that is done; wait until it is done."""
        with self._reporting:
            if not self._is_reported:
                self._is_reported = True
                self._report(ending)
                if self._notice is not None:
                    self._notice.close()

    # What the program and its signals call

    def _leave(self, status: int) -> None:
        """Stand in for `os._exit`."""
        self.tell(Ending(status, None, {}, stopped_by="os._exit"))
        self._exit(status)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Before the program begins, or of a process that was just forked.
        if self._began is None or os.getpid() != self._process_id:
            signal.signal(number, self._handlers[number])
            os.kill(os.getpid(), number)
            return
        if self._is_reported or self._reporting.locked():
            return
        self._received_last = None  # Python code runs: the main thread is not stuck
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        if number != _TIME_IS_UP:
            self._request_stop(signal.Signals(number).name, _EXIT_SIGNAL + number)
        if self._stop_request is not None:
            raise self._another(self._stop_request)

    def _request_stop(self, by: str, status: int) -> None:
        if self._stop_request is None:
            self._stop_request = Stopped(by, status)
            self._stop_requested_at = time.monotonic()

    def _another(self, request: Stopped) -> Stopped:
        stopped = Stopped(request.by, request.status)
        self._raised = weakref.ref(stopped)
        return stopped

    # What the thread does

    def _look_after(self) -> None:
        next_line = FIRST_LINE_SECONDS
        while not self._over.wait(_TICK_SECONDS):
            if self._is_reported or self._began is None:
                continue
            seconds = time.monotonic() - self._began
            if self._notice is not None:
                self._notice.update(self._progress())
            if seconds >= next_line:
                hint = "; Ctrl-C stops and reports" if next_line == FIRST_LINE_SECONDS else ""
                next_line = seconds + min(seconds, _LONGEST_PAUSE_SECONDS)
                self._say(f"{seconds:,.0f} s: {self._progress()}{hint}")
            if self._limit_seconds is not None and seconds >= self._limit_seconds:
                self._request_stop("--seconds", 0)
            self._note_signals()
            self._insist()

    def _note_signals(self) -> None:
        """Note a signal of which the main thread may not come to hear.

        It may also be one that a process got which the program was just forking.
        """
        with suppress(OSError):  # nothing was received
            for number in self._received.recv(64):
                if number in _ENDING and signal.getsignal(number) == self._on_signal:
                    self._received_last = number, time.monotonic()

    def _insist(self) -> None:
        """Interrupt the main thread where that is due, or end the process in its place."""
        request, received = self._stop_request, self._received_last
        is_lost = request is not None and (self._raised is None or self._raised() is None)
        if is_lost or received is not None:
            self._interrupt()
        latest = time.monotonic() - _GRACE_SECONDS
        if request is not None and self._stop_requested_at < latest:
            self._end_process(request)
        elif received is not None and received[1] < latest:
            number = received[0]
            self._end_process(Stopped(signal.Signals(number).name, _EXIT_SIGNAL + number))

    def _interrupt(self) -> None:
        if _TIME_IS_UP is not None and _TIME_IS_UP in self._handlers:
            signal.pthread_kill(_main_thread_id(), _TIME_IS_UP)
        elif _TIME_IS_UP is None and signal.SIGTERM in self._handlers:
            _thread.interrupt_main(signal.SIGTERM)

    def _end_process(self, stopped: Stopped) -> None:
        at = user_line(sys._current_frames().get(_main_thread_id()))
        self.tell(Ending(stopped.status, None, {}, stopped_by=stopped.by, stuck_at=at))
        for child in multiprocessing.active_children():
            child.terminate()
        with suppress(Exception):
            sys.stdout.flush()
        self._exit(stopped.status)

    def _say(self, text: str) -> None:
        # A progress bar that has no end of line yet redraws itself.
        clear = "\r\x1b[K" if streams.is_terminal(self._stream) else ""
        with suppress(BrokenPipeError):
            streams.write(f"{clear}vramlab: {text}\n", self._stream)


_active: list[Overseer] = []


def _main_thread_id() -> int:
    number = threading.main_thread().ident
    assert number is not None
    return number


def _withdraw_all() -> None:
    for overseer in [*_active]:
        overseer.withdraw()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_withdraw_all)
