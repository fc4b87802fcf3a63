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

SECONDS_BEFORE = 1.0
"""What is done sooner is not worth a line."""

_SECONDS_BETWEEN = 1.0
_CLEAR_LINE = "\r\x1b[K"


class Step:
    """What is under way."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._detail = ""
        self._began = time.monotonic()

    def tell(self, detail: str) -> None:
        """Say how far it is, such as `3 of 20, three-linear`."""
        self._detail = detail

    def line(self) -> str:
        """What a terminal shows now."""
        seconds = time.monotonic() - self._began
        detail = f": {self._detail}" if self._detail else ""
        return f"{self._what}{detail} ... {seconds:.0f} s"


@contextmanager
def working(what: str, stream: TextIO | None = None) -> Iterator[Step]:
    """Show what is done in the with statement, if it takes longer than a second.

    Print nothing meanwhile: it would get into the same line.

    Args:
        what: in a few words, such as `simulating`.
        stream: where to show it; by default stderr.
    """
    shown_on = stream or sys.stderr
    step = Step(what)
    if not shown_on.isatty():
        yield step
        return
    over = threading.Event()
    thread = threading.Thread(target=_show, args=(step, shown_on, over), daemon=True)
    thread.start()
    try:
        yield step
    finally:
        over.set()
        thread.join()


def _show(step: Step, stream: TextIO, over: threading.Event) -> None:
    if over.wait(SECONDS_BEFORE):
        return
    while True:
        width = shutil.get_terminal_size().columns - 1
        stream.write(f"{_CLEAR_LINE}{step.line()[:width]}")
        stream.flush()
        if over.wait(_SECONDS_BETWEEN):
            break
    stream.write(_CLEAR_LINE)
    stream.flush()
