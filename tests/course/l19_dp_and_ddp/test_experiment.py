"""Every prediction of lesson 19's experiments is met to the byte, whatever the sizes."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab_course import experiments
from vramlab_course.experiments import Outcome
from vramlab_course.rules import RULES

pytestmark = pytest.mark.long


def missed(outcome: Outcome) -> list[str]:
    return [
        f"{stage.name}: {expectation.quantity}"
        for stage in outcome.result.stages
        for expectation in stage.expectations
        if expectation.predicted_bytes != stage.measured_bytes(expectation.quantity)
    ]


@pytest.mark.parametrize("loss_inside", [False, True])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        {"gpus": 2, "batch": 512, "layers": 3, "classes": 2048},
        {"batch": 10, "layers": 5, "classes": 1024},  # 3, 3, 3 and 1 rows; pieces that go early
        {"batch": 512, "width": 512, "layers": 9, "classes": 512},
    ],
    ids=str,
)
def test_data_parallel(sizes: dict[str, int], loss_inside: bool) -> None:
    with VirtualGPU("T4", 4, torch_version=RULES):
        outcome = experiments.run("data-parallel-step", **sizes, loss_inside=loss_inside)
    assert missed(outcome) == []
    assert len(outcome.result.stages) == 3 * sizes.get("gpus", 4)


def test_bert() -> None:
    outcome = experiments.run_as_published("data-parallel-bert")
    assert missed(outcome) == []
    # the states are on GPU 0 alone: two of every parameter, the pooler's with gradients of zero too
    assert outcome["GPU 0: AdamW's step"].growth_bytes > 2 * 4 * 109_000_000
    assert outcome["GPU 1: AdamW's step"].growth_bytes == 0


@pytest.mark.parametrize("gpu", ["T4", "H200"])
def test_ddp(gpu: str) -> None:
    with VirtualGPU(gpu, torch_version=RULES):
        outcome = experiments.run("ddp-step")
    assert missed(outcome) == []
