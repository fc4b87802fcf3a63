"""Explore how to fit a transformer's training on given GPUs: by formula, and simulated."""

from __future__ import annotations

from vramlab import catalogue
from vramlab.formulas.pipeline_schedules import Name as Schedule
from vramlab.formulas.transformer import (
    ATTENTIONS,
    CHECKPOINTINGS,
    PRECISIONS,
    Attention,
    Checkpointing,
)
from vramlab.formulas.zero import Stage
from vramlab.planner import MODELS, Plan, describe, find_model, report
from vramlab.planner.plan import OFFLOADS, Offload
from vramlab.plots import draw_plan
from vramlab.widgets.explorer import Explorer, View, checkbox, choice, power_slider, run_button

_HEIGHT_PX = 860
_SCHEDULES: tuple[Schedule, ...] = ("1F1B", "GPipe")


def planner_explorer(
    model: str = "llama-3.1-8b",
    gpu: str = "A100-80GB",
    batch: int = 8,
    micro_batch: int = 1,
    sequence: int = 4096,
    precision: str = "bfloat16, float32 master",
    attention: Attention = "flash",
    checkpointing: Checkpointing = "none",
    offload: Offload = "nothing",
    data: int = 8,
    zero: Stage = 3,
    tensor: int = 1,
    sequence_parallel: bool = False,
    pipeline: int = 1,
    schedule: Schedule = "1F1B",
    simulate: bool = False,
) -> Explorer:
    """Show what each GPU of a plan holds, whether it fits, and what would help.

    The closed form answers at once. "Simulate" runs PyTorch's own code for one rank alone on a
    fresh virtual GPU, and shows both; whatever is attached in the notebook is left alone.

    Args:
        model: a name in `vramlab.planner.MODELS`.
        gpu: a GPU of the catalogue.
        batch: sequences of a step, on all GPUs together.
        micro_batch: sequences that a GPU takes at a time.
        sequence: tokens of each.
        precision: a name in `vramlab.formulas.transformer.PRECISIONS`.
        attention: how it is computed.
        checkpointing: what is recomputed in the backward pass.
        offload: what is kept on the host.
        data: data-parallel ranks.
        zero: what they divide.
        tensor: ranks that share matrices.
        sequence_parallel: whether these share each sequence, too.
        pipeline: stages.
        schedule: of the pipeline.
        simulate: whether to run it, too.
    """
    controls = {
        "model": choice("Model", tuple(MODELS), model),
        "gpu": choice("GPU", catalogue.names(), gpu),
        "batch": power_slider("Batch", batch, 1, 1024),
        "micro_batch": power_slider("Micro-batch", micro_batch, 1, 64),
        "sequence": power_slider("Length", sequence, 128, 32768),
        "precision": choice("Precision", tuple(PRECISIONS), precision),
        "attention": choice("Attention", ATTENTIONS, attention),
        "checkpointing": choice("Checkpointing", CHECKPOINTINGS, checkpointing),
        "offload": choice("On the host", OFFLOADS, offload),
        "data": power_slider("Data-parallel", data, 1, 512),
        "zero": choice("ZeRO stage", (0, 1, 2, 3), zero),
        "tensor": power_slider("Tensor-parallel", tensor, 1, 16),
        "sequence_parallel": checkbox("Share sequences, too", sequence_parallel),
        "pipeline": power_slider("Stages", pipeline, 1, 32),
        "schedule": choice("Schedule", _SCHEDULES, schedule),
        "simulate": run_button(
            "Simulate",
            simulate,
            "Run one rank on a fresh virtual GPU; large models take some seconds",
        ),
    }
    return Explorer("Will it fit?", controls, show_plan, _HEIGHT_PX)


def show_plan(*, model: str, simulate: bool, **options: object) -> View:
    """Estimate a plan, and simulate it if asked to.

    Raises:
        UnsupportedPlan, UnevenParts: it cannot be; the message says what can.
    """
    plan = Plan(find_model(model), **options)  # type: ignore[arg-type]
    found = report(plan, simulated=simulate)
    summary = f"{describe(plan)}. {found.verdict()}"
    return View(summary, draw_plan(found), (found.table(), found.changes()))
