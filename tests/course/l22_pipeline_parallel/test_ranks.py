"""Two processes of a pipeline get the gradients that one process gets from the whole batch."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import vramlab
from vramlab.gpu.torch_internals import installed_version
from vramlab.programs.pipeline_schedules import Name
from vramlab_course.lessons.l22_pipeline_parallel.experiment import read_stage
from vramlab_course.lessons.l22_pipeline_parallel.ranks import (
    LAYERS,
    SCHEDULES,
    WIDTH,
    chain,
    train_alone,
)
from vramlab_course.programs.ranks import torchrun

pytestmark = pytest.mark.long


@cache
def two_ranks() -> list[dict[str, Any]]:
    return torchrun("vramlab_course.lessons.l22_pipeline_parallel.ranks", 2)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_gradients_are_those_of_the_whole_batch(schedule: Name) -> None:
    """But for the order of sums: four means of six rows each, and the mean of those."""
    with vramlab.VirtualGPU("T4", values=True):
        alone = train_alone()
    assert len(alone) == LAYERS * (WIDTH * WIDTH + WIDTH)
    together = [number for rank in two_ranks() for number in rank[schedule]]
    assert together == pytest.approx(alone, rel=1e-12, abs=1e-15)


OUTPUT_BYTES = 32 * 64 * 4
"""An activation of a micro-batch in `chain`, or its gradient."""


@pytest.mark.parametrize(
    ("schedule", "still_sending_bytes"),
    [
        ("GPipe", [OUTPUT_BYTES, OUTPUT_BYTES]),  # the first output; the first gradient
        ("1F1B", [OUTPUT_BYTES, 0]),  # the output that was sent ahead; nothing is sent ahead
    ],
)
def test_a_stage_holds_among_others_what_it_holds_alone_and_what_gloo_has_sent(
    schedule: Name, still_sending_bytes: list[int]
) -> None:
    """gloo's works hold a tensor that has been sent for as long as the schedule has the work."""
    pipeline = replace(chain(schedule, 2), torch_version=installed_version())
    alone = []
    for rank in range(2):
        with vramlab.VirtualGPU("T4", torch_version="1.13"):
            alone.append(read_stage(pipeline, rank).peak_bytes)
    assert alone == [pipeline.stage(rank).peak_bytes for rank in range(2)]
    among_others = [rank["peaks_bytes"][schedule] for rank in two_ranks()]
    if pipeline.releases:  # the first stage has released what it sent first
        still_sending_bytes = [0, still_sending_bytes[1]]
    assert among_others == [a + b for a, b in zip(alone, still_sending_bytes, strict=True)]
