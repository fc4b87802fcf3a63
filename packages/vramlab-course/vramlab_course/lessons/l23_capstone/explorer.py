"""Explore how to fit a transformer's training on given GPUs: estimated, and simulated."""

from __future__ import annotations

from typing import Annotated

from vramlab.planner import MODELS, Plan, describe, find_model, report
from vramlab.planner.plan import OFFLOADS, Offload
from vramlab.programs.pipeline_schedules import Name as Schedule
from vramlab.programs.transformer_memory import (
    ATTENTIONS,
    CHECKPOINTINGS,
    PRECISIONS,
    Attention,
    Checkpointing,
)
from vramlab_course.lessons.l20_zero.formulas import Stage
from vramlab_course.lessons.l23_capstone.picture import draw_plan
from vramlab_course.widgets.controls import checkbox, choice, powers, run_button
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU

_SCHEDULES: tuple[Schedule, ...] = ("1F1B", "GPipe")
_TOOLTIP = "Run one rank on a fresh virtual GPU; large models take some seconds"


@explorer("Will it fit?", height_px=860)
def planner_explorer(
    model: Annotated[str, choice("Model", MODELS)] = "llama-3.1-8b",
    gpu: AnyGPU = "A100-80GB",
    batch: Annotated[int, powers("Batch", 1, 1024), "sequences of a step, on all GPUs"] = 8,
    micro_batch: Annotated[int, powers("Micro-batch", 1, 64), "sequences at a time on a GPU"] = 1,
    sequence: Annotated[int, powers("Length", 128, 32768), "tokens of each"] = 4096,
    precision: Annotated[str, choice("Precision", PRECISIONS)] = "bfloat16, float32 master",
    attention: Annotated[Attention, choice("Attention", ATTENTIONS)] = "flash",
    checkpointing: Annotated[Checkpointing, choice("Checkpointing", CHECKPOINTINGS)] = "none",
    offload: Annotated[Offload, choice("On the host", OFFLOADS)] = "nothing",
    data: Annotated[int, powers("Data-parallel", 1, 512), "data-parallel ranks"] = 8,
    zero: Annotated[Stage, choice("ZeRO stage", (0, 1, 2, 3))] = 3,
    tensor: Annotated[int, powers("Tensor-parallel", 1, 16), "ranks that share matrices"] = 1,
    sequence_parallel: Annotated[bool, checkbox("Share sequences, too")] = False,
    pipeline: Annotated[int, powers("Stages", 1, 32), "stages of a pipeline"] = 1,
    schedule: Annotated[Schedule, choice("Schedule", _SCHEDULES)] = "1F1B",
    simulate: Annotated[bool, run_button("Simulate", _TOOLTIP), "whether to run it, too"] = False,
) -> View:
    """Show what each GPU of a plan holds, whether it fits, and what would help.

    PyTorch's own code runs a few layers of one rank alone, and that is extended to all. "Simulate"
    runs all of them on a GPU as large as the real one, and shows both.
    """
    plan = Plan(
        find_model(model),
        gpu=gpu,
        batch=batch,
        micro_batch=micro_batch,
        sequence=sequence,
        precision=precision,
        attention=attention,
        checkpointing=checkpointing,
        offload=offload,
        data=data,
        zero=zero,
        tensor=tensor,
        sequence_parallel=sequence_parallel,
        pipeline=pipeline,
        schedule=schedule,
    )
    found = report(plan, simulated=simulate)
    summary = f"{describe(plan)}. {found.verdict()}"
    return View(summary, draw_plan(found), (found.table(), found.changes()))
