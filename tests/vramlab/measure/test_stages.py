"""Stages measured on a virtual GPU through torch's own interface."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.measure import Expectation, Published, Stages, read_memory, record_timeline
from vramlab.units import MIB


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("T4") as attached:
        yield attached


def take(mib: int, device: str = "cuda") -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device=device)


def test_a_stage_is_measured_by_its_own_peak() -> None:
    stages = Stages("two tensors")
    with stages.stage("big, then gone"):
        big = take(100)
        del big
    with stages.stage("small"):
        small = take(30)
    result = stages.result()
    first, second = result.stages
    assert (first.growth_bytes, first.peak_allocated_bytes) == (0, 100 * MIB)
    # the peak of the second stage forgets the first one's
    assert (second.growth_bytes, second.peak_allocated_bytes) == (30 * MIB, 30 * MIB)
    # 30 MiB come from the 100 MiB that are cached
    assert (second.reserved_before_bytes, second.reserved_growth_bytes) == (100 * MIB, 0)
    assert second.device_used_after_bytes >= 100 * MIB
    assert small.numel() == 30 * MIB


def test_expectations_may_come_before_or_after_the_stage() -> None:
    stages = Stages("one tensor")
    with stages.stage("take", Expectation("growth", 40 * MIB)) as stage:
        kept = take(40)
    stage.expect(Expectation("peak", published=Published(40.0, "MiB", "here")))
    (measurement,) = stages.result().stages
    assert [expectation.quantity for expectation in measurement.expectations] == ["growth", "peak"]
    assert stage.measurement == measurement
    assert [row[4] for row in stages.result().table().rows] == ["equal", "equal"]
    assert kept.numel() == 40 * MIB


def test_a_stage_that_fails_is_recorded_and_the_error_goes_on() -> None:
    stages = Stages("too much")
    with pytest.raises(torch.OutOfMemoryError), stages.stage("take all"):
        take(1024 * 1024)
    (measurement,) = stages.result().stages
    assert measurement.error is not None
    assert measurement.error.startswith("OutOfMemoryError: CUDA out of memory. Tried to allocate")
    assert measurement.growth_bytes == 0
    assert "'take all' ended in OutOfMemoryError" in str(stages.result())


def test_stages_do_not_nest() -> None:
    stages = Stages("nested")
    with (
        stages.stage("outer"),
        pytest.raises(RuntimeError, match="stage 'inner' begins while 'outer' still runs"),
        stages.stage("inner"),
    ):
        pass


def test_stages_mark_a_recording() -> None:
    with record_timeline() as recording:
        stages = Stages("two tensors", recording=recording)
        with stages.stage("first"):
            first = take(2)
        between = take(4)
        with stages.stage("second"):
            second = take(8)
    timeline = recording.timeline
    assert [stage.name for stage in timeline.stages] == ["first", "second"]
    grown = [
        timeline.allocated_bytes[stage.end] - timeline.allocated_bytes[stage.start]
        for stage in timeline.stages
    ]
    assert grown == [2 * MIB, 8 * MIB]  # not the 4 MiB between them
    # the stages reset torch's peak, and it is still known
    assert timeline.measured_peak_bytes == 14 * MIB
    assert timeline.unexplained_bytes == 0
    assert (first.numel(), between.numel(), second.numel()) == (2 * MIB, 4 * MIB, 8 * MIB)


def test_another_device_is_measured_on_its_own() -> None:
    with VirtualGPU("T4", count=2):
        stages = Stages("second GPU", device=1)
        with stages.stage("take"):
            kept = [take(2, "cuda:0"), take(6, "cuda:1")]
        assert stages.result()["take"].growth_bytes == 6 * MIB
        assert read_memory(0).allocated_bytes == 2 * MIB
        assert len(kept) == 2
