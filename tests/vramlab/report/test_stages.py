"""Stages that a program names: what each held, and when the report has advice."""

from __future__ import annotations

import io

import pytest
import torch

import vramlab
from vramlab.report.evidence.stages import StagePeaks, StageUse, watching
from vramlab.units import MIB


def empty(mib: int) -> torch.Tensor:
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def test_a_tracked_piece_tells_what_its_stages_held() -> None:
    told = io.StringIO()
    with vramlab.track("T4", stream=told) as tracked:
        with vramlab.stage("loading"):
            file = empty(4)
            weights = empty(3)
            del file
        for size in (2, 8, 1):
            with vramlab.stage("step"):
                empty(size)
                with vramlab.stage("inner"):
                    empty(2 * size)
        kept = empty(20)  # in no stage
    assert tracked.summary is not None
    (device,) = tracked.summary.devices
    assert device.peak_allocated_bytes == 23 * MIB
    assert device.stages == (
        StageUse("loading", 1, 0, 7 * MIB, 3 * MIB),
        # The one with most: 3 + 2 * 8; what is within a stage counts for it.
        StageUse("inner", 3, 3 * MIB, 19 * MIB, 3 * MIB),
        StageUse("step", 3, 3 * MIB, 19 * MIB, 3 * MIB),
    )
    assert "Loading temporarily allocates 4.00 MiB" in told.getvalue()
    assert "fits: cuda:0 needs" in told.getvalue()
    assert not watching
    assert weights.nbytes + kept.nbytes == 23 * MIB


def test_what_lay_on_an_attached_gpu_before_is_called_other() -> None:
    with vramlab.VirtualGPU("T4", on_value="nan"):
        before = empty(5)
        with vramlab.track(stream=io.StringIO()) as tracked:
            now = empty(2)
            del before
        assert tracked.summary is not None
        (device,) = tracked.summary.devices
        assert device.category_bytes == {"inputs": 2 * MIB, "other": 5 * MIB}
        assert now.is_cuda  # the GPU stays


def test_within_another_report_it_leaves_all_to_that() -> None:
    outer = io.StringIO()
    with vramlab.track("T4", stream=outer) as all_of_it:
        with vramlab.track("L4") as inner:
            assert torch.cuda.get_device_name() == "Tesla T4"
        assert inner.summary is None
    assert all_of_it.summary is not None


def test_an_error_is_told_and_goes_on() -> None:
    told = io.StringIO()
    with (
        pytest.raises(torch.OutOfMemoryError),
        vramlab.track("T4", stream=told),
        vramlab.stage("loading"),
    ):
        empty(20 * 1024)
    assert "does NOT fit: out of memory on cuda:0" in told.getvalue()
    assert not watching


def test_a_stage_that_goes_on_counts_as_it_is() -> None:
    peaks = StagePeaks()
    peaks.begin("saving", 10)
    peaks.note(30)
    assert peaks.uses() == (StageUse("saving", 1, 10, 30, 10),)
