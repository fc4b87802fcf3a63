"""PyTorch's schedules, run on all ranks: what each holds, sends and waits for."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
import torch

from vramlab import catalogue
from vramlab.gpu.torch_internals import installed_version
from vramlab.measure import Rates, StepWork
from vramlab.units import MIB
from vramlab_course.lessons.l22_pipeline_parallel.formulas import Pipeline, even_stages
from vramlab_course.lessons.l22_pipeline_parallel.picture import draw_schedule
from vramlab_course.lessons.l22_pipeline_parallel.schedules import (
    SCHEDULES,
    ScheduleRun,
    bubble,
    run_schedule,
    stages_of,
    work_of,
)

RATES = Rates.of(catalogue.find("A100-40GB"), "NVLink")
ACTIVATION = 2 * MIB
"""512 rows of 1,024 float32 numbers."""

PEAKS_MIB = {
    "GPipe": [126, 126, 126, 112],
    "1F1B": [102, 96, 88, 66],
    "LoopedBFS": [154, 154, 154, 140],
    "Interleaved1F1B": [146, 138, 130, 108],
    "InterleavedZeroBubble": [146, 158, 162, 144],
    "ZBVZeroBubble": [130, 156, 166, 152],
    "DualPipeV": [126, 142, 140, 128],
}
"""Measured with PyTorch 2.13, without what a loss or a connection takes, less than 16 KiB."""

run = cache(run_schedule)


def works(done: ScheduleRun, rank: int) -> list[StepWork]:
    return [event for event in done.events[rank] if isinstance(event, StepWork)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_peaks(name: str) -> None:
    if installed_version() != (2, 13):
        pytest.skip(f"measured with PyTorch 2.13, and this is {torch.__version__}")
    peaks = run(name).peaks_bytes
    assert [peak // MIB for peak in peaks] == PEAKS_MIB[name]
    assert max(peak % MIB for peak in peaks) < 16 * 1024


@pytest.mark.parametrize("name", ["GPipe", "1F1B"])
def test_peaks_with_one_stage_are_those_of_the_closed_form(name: str) -> None:
    pipeline = Pipeline(
        name,  # type: ignore[arg-type]
        512,
        8,
        even_stages(16, 1024, 4),
        torch_version=installed_version(),
    )
    assert run(name).peaks_bytes == [pipeline.stage(rank).peak_bytes for rank in range(4)]


@pytest.mark.parametrize("name", SCHEDULES)
def test_each_rank_does_all_work_of_its_stages_once(name: str) -> None:
    for rank in range(4):
        done = {work_of(work.label) for work in works(run(name), rank)} - {None}
        forward = {(each[0], each[2]) for each in done if each and each[1] == "F"}
        assert forward == {(stage, n) for stage in stages_of(name, rank, 4) for n in range(8)}
        # Backward is whole, or in two halves; the first stage has no gradient of its input.
        kinds = Counter((each[0], each[2]) for each in done if each and each[1] in "BW")
        assert set(kinds) == forward
        assert set(kinds.values()) == {1}


@pytest.mark.parametrize("name", SCHEDULES)
def test_what_is_received_is_as_large_as_what_is_sent(name: str) -> None:
    passed: dict[tuple[str, int, int], list[int]] = {}
    for rank in range(4):
        for work in works(run(name), rank):
            if work.peer is not None:
                pair = (rank, work.peer) if work.kind == "send" else (work.peer, rank)
                passed.setdefault((work.kind, *pair), []).append(work.moved_bytes)
    for (kind, sender, receiver), sizes in passed.items():
        if kind == "send":
            assert passed["receive", sender, receiver] == sizes
    # Between stages on different ranks an activation and a gradient of each micro-batch: 2 on one
    # side of rank 1, and as many on the other. Beside, a number of 4 B opens connections.
    stages = len(stages_of(name, 1, 4))
    assert run(name).sent_bytes(1) // MIB == 2 * 8 * stages * ACTIVATION // MIB


def test_what_lesson_22_says_of_them() -> None:
    waits = {name: bubble(run(name).in_time(RATES)) for name in SCHEDULES}
    highest = {name: max(run(name).peaks_bytes) for name in SCHEDULES}
    assert waits["GPipe"] == pytest.approx(waits["1F1B"], abs=0.01)
    assert min(highest, key=lambda name: highest[name]) == "1F1B"
    loops = ("LoopedBFS", "Interleaved1F1B")
    for name in loops:
        assert waits[name] < waits["1F1B"]
        assert run(name).sent_bytes(1) > run("1F1B").sent_bytes(1)
        assert highest[name] > highest["GPipe"]
    for name in ("InterleavedZeroBubble", "ZBVZeroBubble"):
        assert waits[name] < min(waits[other] for other in loops)
        assert highest[name] == run(name).peaks_bytes[2] > max(highest[other] for other in loops)
    assert waits["ZBVZeroBubble"] < waits["DualPipeV"]
    both = zip(run("DualPipeV").peaks_bytes, run("ZBVZeroBubble").peaks_bytes, strict=True)
    assert all(dual < zbv for dual, zbv in both)


def test_boxes_are_the_work_that_was_recorded() -> None:
    ranks = run("ZBVZeroBubble").in_time(RATES)
    picture = draw_schedule(run("ZBVZeroBubble"), RATES)
    boxes = [path for kind in picture.axes[0].collections for path in kind.get_paths()]
    waiting, work = boxes[:4], boxes[4:]
    width = {
        index: box.vertices[:, 0].max() - box.vertices[:, 0].min() for index, box in enumerate(work)
    }
    end_ms = 1000 * max(rank.end_s for rank in ranks)
    assert [box.vertices[:, 0].max() for box in waiting] == pytest.approx([end_ms] * 4)
    labelled_s = sum(
        each.end_s - each.start_s
        for rank in ranks
        for each in rank.computing()
        if work_of(each.work.label)
    )
    assert sum(width.values()) == pytest.approx(1000 * labelled_s)
