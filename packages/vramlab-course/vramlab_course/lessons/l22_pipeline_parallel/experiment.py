"""Lesson 22: what the stages of a pipeline hold, one by one.

A stage here is one rank alone, of a pipeline of any length: PyTorch's own schedule runs, and no
other rank answers (`vramlab.gpu.stand_ins.ranks.distributed`). `ranks` beside this file has
processes that do answer.

Known limitation: a real sender keeps what it sends for a while; a single rank does not. With gloo
it is an activation of a micro-batch at the peak
(tests/course/l22_pipeline_parallel/test_ranks.py); what NCCL holds has not been measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from vramlab.measure.environment import require_gpus
from vramlab.measure.p2p_sends import record_sends
from vramlab.programs.alone import alone
from vramlab.programs.pipeline_schedules import Name
from vramlab_course.experiments.outcome import Outcome
from vramlab_course.experiments.registry import Conditions, experiment
from vramlab_course.experiments.trial import Trial, expected
from vramlab_course.lessons.l22_pipeline_parallel.formulas import (
    ModelParallel,
    Pipeline,
    cut,
    even_stages,
)
from vramlab_course.lessons.l22_pipeline_parallel.pipeline_stage import LoneStage, linear_layers
from vramlab_course.programs.ranks import refuse_real_gpu

if TYPE_CHECKING:
    pass

# torch.distributed.pipelining is imported where it is needed: it brings torch.export and Dynamo,
# which take a second that every other experiment would wait for.


@dataclass(frozen=True)
class StageReading:
    """What was measured of a stage's first step."""

    before_bytes: int
    """Allocated before it: parameters, and the input of the first stage."""
    peak_bytes: int
    """The most that was allocated."""
    after_bytes: int
    """What stays."""
    sent_bytes: int
    """What it sent to its neighbours: also a number of 4 B to each, which opens the connection.
    From PyTorch 2.15 on only to the next rank."""


def read_stage(pipeline: Pipeline, rank: int) -> StageReading:
    """Run a step of one stage alone, on the GPU that is attached."""
    with alone(pipeline.ranks, rank):
        lone = LoneStage(pipeline.stage(rank))
        before_bytes = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        with record_sends() as sends:
            lone.step()
        reading = StageReading(
            before_bytes,
            torch.cuda.max_memory_allocated(),
            torch.cuda.memory_allocated(),
            sends.sent_bytes,
        )
        del lone
    return reading


@experiment(
    "pipeline-stages",
    lesson="22",
    question="What does each stage of a pipeline hold?",
    source="001 §5.42",
)
def pipeline_stages(
    schedule: Name = "1F1B",
    ranks: int = 4,
    micro_batches: int = 8,
    batch: int = 4096,
    width: int = 1024,
    layers: int = 16,
    checkpointed: bool = False,
    returns_outputs: bool = False,
) -> Outcome:
    """Run the first step of a chain of equal Linear layers in equal stages, once for each stage.

    Args:
        schedule: GPipe or 1F1B.
        ranks: stages.
        micro_batches: of a step.
        batch: rows of all of them.
        width: of the layers.
        layers: in all stages together.
        checkpointed: each stage keeps its input only.
        returns_outputs: the last stage keeps and merges all outputs.
    """
    trial = Trial(
        "pipeline-stages",
        schedule=schedule,
        ranks=ranks,
        micro_batches=micro_batches,
        batch=batch,
        width=width,
        layers=layers,
        checkpointed=checkpointed,
        returns_outputs=returns_outputs,
    )
    if batch % micro_batches:
        raise ValueError(f"{batch} rows cannot be cut into {micro_batches} equal micro-batches")
    refuse_real_gpu(
        f"--nproc-per-node={ranks} -m vramlab_course.lessons.l22_pipeline_parallel.ranks"
    )
    pipeline = Pipeline(
        schedule,
        batch // micro_batches,
        micro_batches,
        even_stages(layers, width, ranks),
        checkpointed,
        returns_outputs,
        trial.environment.installed_version,
    )
    # Of forward's thread and of backward's; each stage is measured as in a fresh process.
    workspaces_bytes = 2 * trial.environment.matmul_workspace_bytes()
    for rank in range(ranks):
        stage = pipeline.stage(rank)
        torch._C._cuda_clearCublasWorkspaces()
        with alone(ranks, rank):
            lone = LoneStage(stage)
            with trial.stage(
                f"stage {rank}",
                expected("peak", stage.peak_bytes + workspaces_bytes),
                expected("allocated", stage.held_after_bytes + workspaces_bytes),
            ):
                lone.step()
            del lone
    return trial.outcome()


@experiment(
    "model-parallel",
    lesson="22",
    question="What does each GPU hold when one process has its layers on several?",
    source="001 §5.41",
    conditions=Conditions(count=4, why="nothing published: any four GPUs"),
)
def model_parallel(
    gpus: int = 4, batch: int = 4096, width: int = 1024, layers: int = 16
) -> Outcome:
    """Run the first step of the same chain in one process, once for each GPU that is looked at.

    Args:
        gpus: on which the layers are, one after the other; so many must be attached.
        batch: rows.
        width: of the layers.
        layers: on all GPUs together.
    """
    require_gpus(gpus, "A100-40GB")
    trial = Trial("model-parallel", gpus=gpus, batch=batch, width=width, layers=layers)
    stages = even_stages(layers, width, gpus)
    predicted = ModelParallel(batch, stages)
    workspaces_bytes = 2 * trial.environment.matmul_workspace_bytes()
    for gpu in range(gpus):
        torch._C._cuda_clearCublasWorkspaces()
        parts = [linear_layers(widths, f"cuda:{place}") for place, widths in enumerate(stages)]
        x = torch.zeros(batch, width, device="cuda:0")
        with (
            torch.cuda.device(gpu),
            trial.stage(
                f"GPU {gpu}", expected("peak", predicted.peak_bytes(gpu) + workspaces_bytes)
            ),
        ):
            forward_in_turn(parts, x).sum().backward()
        del parts, x
    return trial.outcome()


def forward_in_turn(parts: Sequence[nn.Module], x: Tensor) -> Tensor:
    """Take x from GPU to GPU: (rows, inputs) to (rows, outputs)."""
    for place, part in enumerate(parts):
        x = part(x.to(f"cuda:{place}"))
    return x


def read_cut(
    schedule: Name, batch: int, micro_batches: int, widths: Sequence[int], layers: Sequence[int]
) -> list[StageReading]:
    """Run every stage of a chain that is cut by hand, each alone.

    Args:
        schedule: GPipe or 1F1B.
        batch: rows of all micro-batches.
        micro_batches: of a step.
        widths: of the chain's input and of each layer's output.
        layers: of each stage.
    """
    pipeline = Pipeline(schedule, batch // micro_batches, micro_batches, cut(widths, layers))
    return [read_stage(pipeline, rank) for rank in range(pipeline.ranks)]
