"""Display below a notebook cell that runs for long how long it has run, and the stage it measures.

    say_what_long_cells_do()     once; `vramlab_course.widgets` does it when it is imported

Only where a person works: programs that run notebooks get the same outputs at every run. The line
goes when the cell ends.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from html import escape
from typing import Any

from vramlab.measure import StageMeasurement
from vramlab.measure.stages import observed_by
from vramlab_course.widgets.person import in_a_kernel, person_runs

SECONDS_BEFORE = 2.0
"""What is done sooner is not worth a line."""

_SECONDS_BETWEEN = 1.0

Show = Callable[[str], object]
"""Replaces the HTML that it was given before; "" takes it away."""


class RunningCell:
    """The line of one cell, from when the cell begins until it ends.

    Args:
        show: where the line goes. It is called from a thread of its own.
    """

    def __init__(self, show: Show) -> None:
        self._show = show
        self._stage = ""
        self._is_shown = False
        self._began = time.monotonic()
        self._over = threading.Event()
        self._observing = ExitStack()
        self._observing.enter_context(observed_by(self))
        # With the context of the cell, by which Jupyter knows where outputs belong.
        follow = contextvars.copy_context().run
        self._thread = threading.Thread(target=follow, args=(self._follow,), daemon=True)
        self._thread.start()

    def stage_begins(self, name: str) -> None:
        """Note the stage of an experiment that is measured now."""
        self._stage = name

    def stage_ended(self, measurement: StageMeasurement) -> None:
        """Note that no stage is measured now."""
        self._stage = ""

    def line(self) -> str:
        """Return what is shown now."""
        seconds = time.monotonic() - self._began
        stage = f", at: {self._stage}" if self._stage else ""
        return f"running for {seconds:.0f} s{stage}"

    def ends(self) -> None:
        """Take the line away."""
        self._observing.close()
        self._over.set()
        self._thread.join()
        if self._is_shown:
            self._show("")

    def _follow(self) -> None:
        pause = SECONDS_BEFORE
        while not self._over.wait(pause):
            pause = _SECONDS_BETWEEN
            self._is_shown = True
            self._show(f"<em>{escape(self.line())}</em>")


class _Display:
    """An output of the cell that can be put in another's place."""

    def __init__(self) -> None:
        self._handle: Any = None

    def __call__(self, html: str) -> None:
        from IPython.display import HTML, display

        if self._handle is None:
            self._handle = display(HTML(html), display_id=True)
        else:
            self._handle.update(HTML(html))


class _Cells:
    """Follows the cells of a shell, one at a time."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._running: RunningCell | None = None

    def begins(self, *_: object) -> None:
        self.ends()
        if person_runs(self._shell):
            self._running = RunningCell(_Display())

    def ends(self, *_: object) -> None:
        if self._running is not None:
            self._running.ends()
            self._running = None


_followed: list[_Cells] = []


def say_what_long_cells_do() -> None:
    """Follow this kernel's cells from the running one on; does nothing where no kernel is."""
    shell = in_a_kernel()
    if _followed or shell is None:
        return
    cells = _Cells(shell)
    _followed.append(cells)
    shell.events.register("pre_run_cell", cells.begins)
    shell.events.register("post_run_cell", cells.ends)
    cells.begins()
