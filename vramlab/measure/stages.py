"""Run the named stages of an experiment and measure what each does to a GPU's memory.

Only torch's own interface is used, so the same lines measure a real GPU and a virtual one:

    stages = Stages("one linear layer")
    with stages.stage("model", Expectation("growth", 4 * MIB)):
        model = torch.nn.Linear(1024, 1024, bias=False, device="cuda")
    with stages.stage("forward") as forward:
        y = model(torch.zeros(8, 1024, device="cuda"))
    forward.expect(Expectation("peak", published=Published(12.16, "MiB", "nowhere")))
    result = stages.result()
    print(result)                                # or leave `result` as a cell's last line
    result["forward"].growth_bytes               # an int
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

import torch

from vramlab.attachment import attached
from vramlab.measure.counters import read_memory, reset_peaks
from vramlab.measure.figures import Expectation
from vramlab.measure.history.recording import Recording
from vramlab.measure.results import Result, StageMeasurement


class StageObserver(Protocol):
    """Receives every measured stage, regardless of which code measures it."""

    def stage_begins(self, name: str) -> None:
        """Handle the start of a stage, before its first reading."""

    def stage_ended(self, measurement: StageMeasurement) -> None:
        """Hear that it is over, after its last reading, whether or not it raised."""


_observers: list[StageObserver] = []


@contextmanager
def observed_by(observer: StageObserver) -> Iterator[None]:
    """Tell `observer` of every stage that runs in the body of the with statement."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


class StageHandle:
    """What `with stages.stage(...)` gives: the place for expectations that come late."""

    def __init__(self, name: str, expectations: tuple[Expectation, ...]) -> None:
        self.name = name
        self._expectations = expectations
        self._measurement: StageMeasurement | None = None

    def expect(self, *expectations: Expectation) -> None:
        """Add expectations that could not be written down before the stage ran."""
        self._expectations += expectations

    @property
    def measurement(self) -> StageMeasurement:
        """Return what was measured; RuntimeError while the stage still runs."""
        if self._measurement is None:
            raise RuntimeError(
                f"stage {self.name!r} has not ended yet: ask for its measurement "
                "after its with block"
            )
        return replace(self._measurement, expectations=self._expectations)


class Stages:
    """Measures stages one after the other on one device.

    Each stage resets torch's peak counters when it begins. A stage that raises is recorded with
    its error, and the exception goes on.

    Args:
        name: name of the experiment, for the result.
        device: index of the GPU; the current one if None.
        recording: a running `record_timeline()` in which each stage is to be marked as well.
    """

    def __init__(
        self, name: str, device: int | None = None, recording: Recording | None = None
    ) -> None:
        self.name = name
        self.device = device
        self._recording = recording
        self._handles: list[StageHandle] = []

    @contextmanager
    def stage(self, name: str, *expectations: Expectation) -> Iterator[StageHandle]:
        """Measure the body of the with statement as one stage.

        Args:
            name: what the stage does. A name may come again: `result[name]` is the last one.
            expectations: what is predicted or published, such as `Expectation("growth", 512)`.
        """
        if any(handle._measurement is None for handle in self._handles):
            raise RuntimeError(
                f"stage {name!r} begins while {self._handles[-1].name!r} still runs; "
                "stages of one experiment come one after the other, never inside each other"
            )
        handle = StageHandle(name, expectations)
        self._handles.append(handle)
        if self._recording is not None:
            self._recording.stage(name)
        for observer in _observers:
            observer.stage_begins(name)
        reset_peaks(self.device)
        before = read_memory(self.device)
        error = None
        try:
            yield handle
        except BaseException as exception:
            error = f"{type(exception).__name__}: {exception}"
            raise
        finally:
            after = read_memory(self.device)
            if self._recording is not None:
                self._recording.stage(None)
            handle._measurement = StageMeasurement(
                name=name,
                allocated_before_bytes=before.allocated_bytes,
                allocated_after_bytes=after.allocated_bytes,
                peak_allocated_bytes=after.peak_allocated_bytes,
                reserved_before_bytes=before.reserved_bytes,
                reserved_after_bytes=after.reserved_bytes,
                peak_reserved_bytes=after.peak_reserved_bytes,
                device_used_after_bytes=after.device_used_bytes,
                error=error,
            )
            for observer in _observers:
                observer.stage_ended(handle._measurement)

    def result(self) -> Result:
        """Return everything measured so far, as data."""
        gpu = attached()
        return Result(
            name=self.name,
            gpu=torch.cuda.get_device_name(self.device),
            virtual=gpu is not None and gpu.virtual,
            torch_version=str(torch.__version__),
            stages=tuple(handle.measurement for handle in self._handles),
        )
