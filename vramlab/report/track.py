"""`vramlab.track()`: the report of `vramlab run`, for a piece of a program or of a notebook.

It is a context manager:

    with vramlab.track("A100-40GB") as tracked:
        with vramlab.stage("loading"):
            model = load()
        train(model)
    tracked.summary.devices[0].needed_bytes
"""

from __future__ import annotations

import sys
from typing import Any

from vramlab import streams
from vramlab.gpu.attached_gpus import ATTACHED
from vramlab.report.evidence.stages import watching
from vramlab.report.measurement import Measurement
from vramlab.report.showing.shown import as_shown
from vramlab.report.summary import Summary


class Tracked:
    """A piece of a program that is watched: what `with track() as tracked` gives.

    Attributes:
        summary: what was found; None until the piece has ended, and where something else watches.
    """

    def __init__(self, measurement: Measurement | None, stream: Any) -> None:
        self.summary: Summary | None = None
        self._measurement = measurement
        self._stream = stream

    def __enter__(self) -> Tracked:
        if self._measurement is not None:
            self._measurement.begin()
        return self

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if self._measurement is None:
            return
        try:
            self.summary = self._measurement.summary(error)
        finally:
            self._measurement.end()
        stream = self._stream or sys.stderr
        streams.write(f"\n{as_shown(self.summary, stream)}\n", stream, sys.__stderr__)


def track(gpu: str | None = None, count: int = 1, *, stream: Any = None, **options: Any) -> Tracked:
    """Watch the body of the with statement, and print at its end where its memory went.

    Under `vramlab run`, or inside another `track()`, the outer report includes it.

    Args:
        gpu: which virtual GPU to attach, such as "T4"; None: the one that is attached, or else an
            A100-40GB. What lay on an attached GPU before is not told of.
        count: how many.
        stream: where to print; None: stderr.
        options: others of `VirtualGPU`. Values that do not exist are nan, unless `on_value` says
            otherwise.

    Raises:
        UnknownGPUError: there is no GPU of that name.
    """
    if watching:
        return Tracked(None, stream)
    there = ATTACHED.newest if gpu is None else None
    if there is not None:
        return Tracked(Measurement("a tracked program", there), stream)
    options = {"name": gpu or "A100-40GB", "count": count, **options}
    return Tracked(Measurement("a tracked program", options), stream)
