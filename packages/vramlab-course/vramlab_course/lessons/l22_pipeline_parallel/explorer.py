"""Explore pipelines: who works when, and what each stage holds at its peak."""

from __future__ import annotations

from typing import Annotated

from vramlab import VirtualGPU
from vramlab.gpu.torch_internals import installed_version
from vramlab.measure import Table
from vramlab.programs.pipeline_schedules import NAMES, Name, plan
from vramlab.units import format_mib
from vramlab_course.lessons.l22_pipeline_parallel.experiment import read_stage
from vramlab_course.lessons.l22_pipeline_parallel.formulas import (
    BUFFERS,
    IN_FLIGHT,
    Pipeline,
    even_stages,
)
from vramlab_course.lessons.l22_pipeline_parallel.picture import draw_gantt
from vramlab_course.widgets.controls import choice, slider
from vramlab_course.widgets.explorer import View, explorer

BATCH = 4096
"""Rows, cut into the chosen number of micro-batches."""
WIDTH = 1024
LAYERS_PER_RANK = 4

RULES = "1.13"
"""In which cuBLAS takes nothing of the allocator: what is left is the pipeline's."""

KEPT = ("all activations", "the input only (checkpointing)")


@explorer("Who works when, and what each rank holds")
def pipeline_explorer(
    schedule: Annotated[Name, choice("Schedule", NAMES)] = "1F1B",
    ranks: Annotated[int, slider("Ranks", 1, 8), "stages, of equally many layers"] = 4,
    micro_batches: Annotated[int, choice("Micro-batches", (1, 2, 4, 8, 16, 32))] = 8,
    kept: Annotated[str, choice("A micro-batch keeps", KEPT)] = KEPT[0],
) -> View:
    """Show a step of a pipeline over time, and the peak of each stage: predicted and measured.

    A batch of `BATCH` rows is cut into micro-batches. All stages run, one at a time. Interleaved
    1F1B, with two stages on each rank, is planned only.
    """
    is_interleaved = schedule == "interleaved 1F1B"
    whole = plan(schedule, ranks, micro_batches, 2 if is_interleaved else 1)
    summary = f"The ranks wait {float(whole.bubble):.1%} of the time. That is the pipeline bubble."
    if is_interleaved:
        flying = ", ".join(f"{whole.in_flight(rank) / 2:g}" for rank in range(ranks))
        summary += f" In flight, in micro-batches of a whole rank: {flying}."
        return View(summary, draw_gantt(whole))
    pipeline = Pipeline(
        schedule,
        BATCH // micro_batches,
        micro_batches,
        even_stages(LAYERS_PER_RANK * ranks, WIDTH, ranks),
        is_checkpointed=kept == KEPT[1],
        torch_version=installed_version(),
    )
    in_flight_bytes = pipeline.stage(0).in_flight_bytes
    picture = draw_gantt(whole, micro_batch_bytes=in_flight_bytes or None)
    return View(summary, picture, (_table(pipeline),))


def _table(pipeline: Pipeline) -> Table:
    rows = []
    for rank in range(pipeline.ranks):
        stage = pipeline.stage(rank)
        _, parts = stage.peak()
        measured_bytes = _measured_peak_bytes(pipeline, rank)
        sizes = (parts.get(IN_FLIGHT, 0), parts[BUFFERS], stage.peak_bytes, measured_bytes)
        rows.append((f"rank {rank}", str(stage.in_flight), *map(format_mib, sizes)))
    return Table(
        f"Peak of a step: {BATCH:,} rows of {WIDTH:,} numbers, {LAYERS_PER_RANK} Linear layers on "
        "each rank",
        (
            "",
            "most in flight",
            "at the peak: others in flight",
            "buffers to receive into",
            "peak, predicted",
            "peak, measured",
        ),
        tuple(rows),
    )


def _measured_peak_bytes(pipeline: Pipeline, rank: int) -> int:
    with VirtualGPU("A100-40GB", torch_version=RULES):
        return read_stage(pipeline, rank).peak_bytes
