"""A virtual GPU for a piece of a program, and a report of what was seen on it."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from vramlab.gpu import VirtualGPU
from vramlab.report.collect import summarize, virtual_ground
from vramlab.report.evidence.watch import Watch
from vramlab.report.running.program import Ending
from vramlab.report.summary import Summary


class Measurement:
    """Attaches GPUs and watches them, between `begin()` and `end()`.

    Args:
        name: what is measured, for the report.
        gpu: a virtual GPU that is attached and stays so; or options of one to attach, where values
            that do not exist are nan unless they say otherwise.
        folder: where it runs: the current folder if None.
    """

    def __init__(
        self, name: str, gpu: VirtualGPU | Mapping[str, Any], folder: str | None = None
    ) -> None:
        self._name = name
        self._folder = folder or os.getcwd()
        self._attaches = not isinstance(gpu, VirtualGPU)
        self._gpu = gpu if isinstance(gpu, VirtualGPU) else VirtualGPU(**{"on_value": "nan", **gpu})
        self._watch = Watch(self._gpu)
        self._ground = partial(virtual_ground, self._gpu, "")
        self._undo = ExitStack()
        self._began = 0.0

    def begin(self) -> None:
        """Attach the GPUs."""
        with ExitStack() as undo:
            undo.enter_context(self._watch)
            if self._attaches:
                undo.enter_context(self._gpu)
            self._undo = undo.pop_all()
        self._began = time.perf_counter()

    def summary(self, error: BaseException | None = None) -> Summary:
        """Return what was seen until now.

        Args:
            error: what it has ended with.
        """
        self._watch.look_everywhere()
        ending = Ending(0 if error is None else 1, error, {})
        seconds = time.perf_counter() - self._began
        return summarize(self._ground(), self._watch, self._name, self._folder, ending, seconds)

    def end(self) -> None:
        """Take the GPUs away. Twice is harmless."""
        self._undo.close()
