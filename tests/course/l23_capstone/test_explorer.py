"""The planner's explorer: what fits, what would help, and that a simulation says the same."""

from __future__ import annotations

import inspect
import re

import pytest

from vramlab_course.lessons.l23_capstone.explorer import planner_explorer
from vramlab_course.widgets.explorer import Explorer

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    """Return the explorer as it begins; no test changes it, for its plan takes seconds."""
    return planner_explorer()


def small() -> Explorer:
    """GPT-2 on one GPU, with few tokens."""
    return planner_explorer(
        model="gpt2", precision="autocast bfloat16", batch=1, sequence=128, data=1, zero=0
    )


def status(explorer: Explorer) -> str:
    """What screen readers read out."""
    (said,) = re.findall(r'<p role="status" aria-live="polite">(.*?)</p>', explorer.output.value)
    return str(said)


def alternative_text(explorer: Explorer) -> str:
    (said,) = re.findall(r'<img [^>]*alt="([^"]*)"', explorer.output.value)
    return str(said)


def test_there_is_a_control_for_each_option(explorer: Explorer) -> None:
    options = inspect.signature(planner_explorer).parameters
    assert explorer.settings() == {name: option.default for name, option in options.items()}
    named = {name: control.description for name, control in explorer.controls.items()}
    assert named == {
        "model": "Model",
        "gpu": "GPU",
        "batch": "Batch",
        "micro_batch": "Micro-batch",
        "sequence": "Length",
        "precision": "Precision",
        "attention": "Attention",
        "checkpointing": "Checkpointing",
        "offload": "On the host",
        "data": "Data-parallel",
        "zero": "ZeRO stage",
        "tensor": "Tensor-parallel",
        "sequence_parallel": "Share sequences, too",
        "pipeline": "Stages",
        "schedule": "Schedule",
        "simulate": "Simulate",
    }


def test_other_settings_are_other_plans_and_what_cannot_be_is_told_in_place() -> None:
    explorer = planner_explorer(gpu="A10", checkpointing="full")
    assert "flash attention, full checkpointing, on 8 x A10: 8 data-parallel" in status(explorer)
    assert "of the 21.85 GiB available on A10" in status(explorer)
    explorer.controls["batch"].value = 4
    shown = explorer.output.value
    assert '<div role="alert"' in shown
    assert "<strong>UnsupportedPlan</strong>" in shown
    assert "a batch of 4 cannot be divided into micro-batches" in shown
    explorer.controls["data"].value = 4
    assert "4 x 4096 tokens" in status(explorer)
    explorer.controls["tensor"].value = 16
    assert "<strong>UnevenParts</strong>" in explorer.output.value
    assert "16 tensor-parallel ranks do not divide 8 key" in explorer.output.value


def test_a_simulation_says_the_same_to_the_byte() -> None:
    explorer = small()
    assert "simulated" not in explorer.output.value
    explorer.controls["simulate"].value = True
    assert "It fits: " in status(explorer)
    assert "peak reserved memory is" in status(explorer)
    # Parameters, states, inputs, unsplit remainders, all else, and the sum.
    assert explorer.output.value.count(">equal</td>") == 6
    # 124,439,808 parameters of 4 B are 474.7 MiB.
    assert ". simulated: " in alternative_text(explorer)
    assert alternative_text(explorer).count("parameters 474.7 MiB") == 2
    explorer.controls["simulate"].value = False
    assert "simulated" not in explorer.output.value
