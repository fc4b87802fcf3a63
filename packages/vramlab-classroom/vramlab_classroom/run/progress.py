"""Show a run's progress: one rewritten line on a terminal, occasional lines elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

from vramlab import streams

TERMINAL_SECONDS = 0.2
ELSEWHERE_SECONDS = 30.0
_SECONDS_PER_MINUTE = 60
_CLEAR_LINE = "\r\x1b[K"


class Progress:
    """Counts submissions."""

    def __init__(
        self,
        total: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Begin.

        Args:
            total: number of submissions.
            stream: where it is shown; by default stdout.
            clock: seconds, from whenever.
        """
        self._total = total
        self._stream = sys.stdout if stream is None else stream
        self._clock = clock
        self._started = self._shown = clock()
        self._done = self._graded = self._open = 0

    @property
    def seconds(self) -> float:
        """Since the beginning."""
        return self._clock() - self._started

    def add(self, *, graded: bool, needs_human: bool = False) -> None:
        """Count a submission.

        Args:
            graded: in this run, not in an earlier one.
            needs_human: some of it has no score.
        """
        self._done += 1
        self._graded += graded
        self._open += needs_human
        pause = TERMINAL_SECONDS if streams.is_terminal(self._stream) else ELSEWHERE_SECONDS
        now = self._clock()
        if now - self._shown >= pause:
            self._shown = now
            self._show()

    def say(self, text: str) -> None:
        """Tell something else, in lines of its own."""
        self.end()
        streams.write(f"{text}\n", self._stream)

    def end(self) -> None:
        """Leave the line to others."""
        if streams.is_terminal(self._stream):
            streams.write(_CLEAR_LINE, self._stream)

    def text(self) -> str:
        """Describe how far it is."""
        parts = [f"{self._done} of {self._total} submissions"]
        per_minute = self._graded / max(self.seconds, 1e-9) * _SECONDS_PER_MINUTE
        if self._graded:
            parts.append(f"{per_minute:.0f} per minute")
        if self._graded and self._done < self._total:
            minutes = (self._total - self._done) / per_minute
            parts.append("less than a minute left" if minutes < 1 else f"{minutes:.0f} min left")
        if self._open:
            parts.append(f"{self._open} for a human")
        return ", ".join(parts)

    def _show(self) -> None:
        if streams.is_terminal(self._stream):
            width = shutil.get_terminal_size().columns - 1
            streams.write(f"{_CLEAR_LINE}{self.text()[:width]}", self._stream)
        else:
            streams.write(f"{self.text()}\n", self._stream)
