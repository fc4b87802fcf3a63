"""Says on a terminal what is under way, and since when, while a program has nothing else to say.

It is one line on stderr, which is rewritten every second and cleared at the end. Where stderr is no
terminal, nothing is written, so that logs stay clean.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from vramlab import streams

SECONDS_BEFORE = 1.0
"""What is done sooner is not worth a line."""

_SECONDS_BETWEEN = 1.0
_CLEAR_LINE = "\r\x1b[K"


class Step:
    """What is under way: what `with working(...) as step` gives."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self._what = what
        self._stream = stream
        self._detail = ""
        self._began = time.monotonic()
        self._is_shown = False
        self._writing = threading.Lock()

    def tell(self, detail: str) -> None:
        """Say how far it is, such as `3 of 20, three-linear`."""
        self._detail = detail

    def say(self, text: str) -> None:
        """Print lines on stdout that stay."""
        with self._writing:
            self._clear()
            print(text)
            streams.flush(sys.stdout)

    def line(self) -> str:
        """Return what a terminal shows now."""
        seconds = time.monotonic() - self._began
        detail = f": {self._detail}" if self._detail else ""
        return f"{self._what}{detail} ... {seconds:.0f} s"

    def _show_until(self, over: threading.Event) -> None:
        pause = SECONDS_BEFORE
        while not over.wait(pause):
            pause = _SECONDS_BETWEEN
            with self._writing:
                width = shutil.get_terminal_size().columns - 1
                streams.write(f"{_CLEAR_LINE}{self.line()[:width]}", self._stream)
                self._is_shown = True
        with self._writing:
            self._clear()

    def _clear(self) -> None:
        if self._is_shown:
            streams.write(_CLEAR_LINE, self._stream)
            self._is_shown = False


@contextmanager
def working(what: str, stream: TextIO | None = None) -> Iterator[Step]:
    """Show what is done in the with statement, if it takes longer than a second.

    Print nothing meanwhile except by `Step.say`: it would get into the same line.

    Args:
        what: in a few words, such as `simulating`.
        stream: where to show it; by default stderr.
    """
    shown_on = sys.stderr if stream is None else stream
    step = Step(what, shown_on)
    if not streams.is_terminal(shown_on):
        yield step
        return
    over = threading.Event()
    thread = threading.Thread(target=step._show_until, args=(over,), daemon=True)
    thread.start()
    try:
        yield step
    finally:
        over.set()
        thread.join()
