"""Every prediction of lesson 22's experiments is met to the byte, whatever the sizes."""

from __future__ import annotations

from typing import Any

import pytest
from torch.distributed.pipelining import PipelineStage

from vramlab import VirtualGPU
from vramlab.gpu.torch_internals import installed_version
from vramlab.programs.pipeline_schedules import Name, plan
from vramlab_course import experiments
from vramlab_course.experiments import Outcome
from vramlab_course.lessons.l22_pipeline_parallel.experiment import read_cut, read_stage
from vramlab_course.lessons.l22_pipeline_parallel.formulas import (
    Pipeline,
    cut,
    even_stages,
    sent_bytes,
)
from vramlab_course.rules import RULES


def missed(outcome: Outcome) -> list[str]:
    return [
        f"{stage.name}: {expectation.quantity}"
        for stage in outcome.result.stages
        for expectation in stage.expectations
        if expectation.predicted_bytes != stage.measured_bytes(expectation.quantity)
    ]


@pytest.mark.parametrize(
    "how",
    [
        {"schedule": "GPipe"},
        {"schedule": "1F1B"},
        {"schedule": "1F1B", "checkpointed": True},
        {"schedule": "GPipe", "checkpointed": True, "returns_outputs": True},
        {"schedule": "1F1B", "ranks": 2, "micro_batches": 2, "batch": 512, "layers": 2},
        {"schedule": "1F1B", "ranks": 1, "layers": 3},
    ],
    ids=str,
)
def test_stages(how: dict[str, Any]) -> None:
    with VirtualGPU("A100-40GB", torch_version=RULES):
        outcome = experiments.run("pipeline-stages", **how)
    assert missed(outcome) == []
    assert len(outcome.result.stages) == how.get("ranks", 4)


def test_on_a_gpu_with_larger_workspaces() -> None:
    with VirtualGPU("H200", torch_version=RULES):
        assert missed(experiments.run("pipeline-stages", micro_batches=4)) == []


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
@pytest.mark.parametrize(("ranks", "micro_batches"), [(4, 6), (4, 4), (3, 5)])
def test_the_plan_is_what_torch_runs(
    schedule: Name, ranks: int, micro_batches: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[tuple[str, int]] = []
    forward, backward = PipelineStage.forward_one_chunk, PipelineStage.backward_one_chunk

    def forward_too(stage: Any, micro_batch: int, *args: Any, **kwargs: Any) -> Any:
        done.append(("forward", micro_batch))
        return forward(stage, micro_batch, *args, **kwargs)

    def backward_too(stage: Any, micro_batch: int, **kwargs: Any) -> Any:
        done.append(("backward", micro_batch))
        return backward(stage, micro_batch, **kwargs)

    monkeypatch.setattr(PipelineStage, "forward_one_chunk", forward_too)
    monkeypatch.setattr(PipelineStage, "backward_one_chunk", backward_too)
    pipeline = Pipeline(schedule, 8, micro_batches, even_stages(ranks, 16, ranks))
    for rank in range(ranks):
        done.clear()
        with VirtualGPU("T4", torch_version=RULES):
            read_stage(pipeline, rank)
        planned = plan(schedule, ranks, micro_batches).order(rank)
        assert done == [(work.direction, work.micro_batch) for work in planned]


@pytest.mark.parametrize("schedule", ["GPipe", "1F1B"])
@pytest.mark.parametrize(
    ("checkpointed", "returns_outputs"), [(False, False), (False, True), (True, True)]
)
def test_uneven_stages(schedule: Any, checkpointed: bool, returns_outputs: bool) -> None:
    stages = ((256, 512, 384), (384, 512), (512, 128, 640, 256), (256, 1024))
    pipeline = Pipeline(schedule, 64, 6, stages, checkpointed, returns_outputs, installed_version())
    for rank in range(4):
        # by the rules of 1.13, in which cuBLAS takes nothing of the allocator
        with VirtualGPU("A100-40GB", torch_version="1.13"):
            reading = read_stage(pipeline, rank)
        stage = pipeline.stage(rank)
        assert reading.before_bytes == stage.parameters_bytes + stage.input_bytes
        assert reading.peak_bytes == stage.peak_bytes
        assert reading.after_bytes == stage.held_after_bytes
        # A number to each neighbour; from 2.15 on, to the next rank only.
        numbers = (1, 1, 1, 0) if pipeline.releases else (1, 2, 2, 1)
        assert reading.sent_bytes == sent_bytes(pipeline, rank) + 4 * numbers[rank]


def test_model_parallel() -> None:
    outcome = experiments.run_as_published("model-parallel")
    assert missed(outcome) == []
    assert [stage.name for stage in outcome.result.stages] == [f"GPU {gpu}" for gpu in range(4)]
    with VirtualGPU("H200", count=2, torch_version=RULES):
        assert missed(experiments.run("model-parallel", gpus=2, layers=2, batch=512)) == []


def test_a_chain_that_is_cut_by_hand() -> None:
    with VirtualGPU("A100-40GB", torch_version="1.13"):
        readings = read_cut("1F1B", 256, 4, (64, 64, 64, 256), (2, 1))
    stages = cut((64, 64, 64, 256), (2, 1))
    pipeline = Pipeline("1F1B", 64, 4, stages, torch_version=installed_version())
    assert [reading.peak_bytes for reading in readings] == [
        pipeline.stage(rank).peak_bytes for rank in range(2)
    ]
    assert even_stages(2, 64, 2) == cut((64, 64, 64), (1, 1))
