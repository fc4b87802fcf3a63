"""The closed form of plans against simulations: PyTorch's own code for one rank alone.

Allocated bytes at the peak but for rests of blocks are compared.
"""

from __future__ import annotations

from typing import Any

import pytest
from small_models import GPT, LLAMA

from vramlab.planner import Plan, estimate, estimate_stage, simulate
from vramlab.programs.transformer_memory import Sizes

MODELS = {"GPT": GPT, "Llama": LLAMA}

PURE, MASTER = "pure bfloat16", "bfloat16, float32 master"
SHORT = {"batch": 8, "sequence": 32, "data": 8}
"""Few tokens for many parameters: what is gathered and scattered decides the peak."""

EXACT: dict[str, dict[str, Any]] = {
    "one GPU": {},
    "everything recomputed": {"checkpointing": "full", "precision": PURE},
    "accumulation": {"micro_batch": 2},
    "accumulation in 16 bit": {"micro_batch": 2, "precision": PURE},
    "fused optimizer": {"implementation": "fused", "batch": 1, "precision": "float32"}
    | {"attention": "efficient"},
    "DDP": {"data": 2},
    "DDP, accumulation": {"data": 2, "micro_batch": 2, "precision": PURE},
    "ZeRO-1": {"data": 2, "zero": 1},
    "ZeRO-1 with copies": {"data": 2, "zero": 1, "precision": MASTER},
    "ZeRO-2": {"data": 2, "zero": 2},
    "ZeRO-2, few tokens": {**SHORT, "zero": 2, "precision": PURE},
    "ZeRO-3": {"data": 2, "zero": 3},
    "ZeRO-3 with copies, few tokens": {**SHORT, "zero": 3, "precision": MASTER},
    "FSDP2 offload": {"data": 2, "zero": 3, "offload": "optimizer"},
    "first of two stages": {"pipeline": 2, "micro_batch": 2, "precision": PURE},
    "first of four stages": {"pipeline": 4, "micro_batch": 1, "precision": PURE},
    "GPipe": {"pipeline": 4, "micro_batch": 1, "precision": PURE, "schedule": "GPipe"},
}

# Larger than 0: sums for biases, and tensors of a few kB that come and go around the loss.
SMALL_BYTES = 24 * 1024
NEARLY: dict[str, dict[str, Any]] = {
    "tensor parallel": {"tensor": 2, "precision": PURE},
    "with the sequence": {"tensor": 2, "sequence_parallel": True, "precision": PURE},
}

# `rank_peak` names what these leave out: what autocast keeps cast through a whole step of a
# pipeline, and what tensor parallelism makes for a moment.
LARGEST_SHARE = 0.06
ROUGHLY: dict[str, dict[str, Any]] = {
    "tensor parallel, autocast": {"tensor": 2},
    "ZeRO-3, accumulation": {"data": 2, "zero": 3, "micro_batch": 1},
    "pipeline with ZeRO-2": {"pipeline": 2, "micro_batch": 2, "data": 2, "zero": 2},
    "pipeline with ZeRO-3": {"pipeline": 2, "micro_batch": 2, "data": 2, "zero": 3},
    "optimizer on the host, pipeline": {"offload": "optimizer", "pipeline": 2, "micro_batch": 2}
    | {"precision": PURE},
    "all of them": {"pipeline": 2, "micro_batch": 2, "tensor": 2, "data": 2, "zero": 3}
    | {"sequence_parallel": True},
}


def plan_of(model: str, options: dict[str, Any]) -> Plan:
    return Plan(MODELS[model], **{"gpu": "A100-40GB", "batch": 8, "sequence": 256, **options})


def difference_bytes(plan: Plan, stage: int = 0) -> int:
    return simulate(plan, stage).peak_bytes - estimate_stage(plan, stage).peak_bytes


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("model", MODELS)
def test_to_the_byte(model: str, name: str) -> None:
    assert difference_bytes(plan_of(model, EXACT[name])) == 0


@pytest.mark.parametrize("name", NEARLY)
@pytest.mark.parametrize("model", MODELS)
def test_but_for_little_tensors(model: str, name: str) -> None:
    assert 0 <= difference_bytes(plan_of(model, NEARLY[name])) <= SMALL_BYTES


@pytest.mark.parametrize("name", ROUGHLY)
@pytest.mark.parametrize("model", MODELS)
def test_but_for_what_is_known_to_be_left_out(model: str, name: str) -> None:
    plan = plan_of(model, ROUGHLY[name])
    for stage in {0, plan.pipeline - 1}:
        expected = estimate_stage(plan, stage).peak_bytes
        assert abs(difference_bytes(plan, stage)) <= LARGEST_SHARE * expected


@pytest.mark.parametrize("model", MODELS)
def test_what_a_rank_keeps_is_exact_with_all_of_them(model: str) -> None:
    plan = plan_of(model, ROUGHLY["all of them"])
    found, measured = estimate_stage(plan, 0), simulate(plan, 0)
    for name in ("parameters", "optimizer states", "inputs"):
        assert found.bytes_by_category[name] == measured.bytes_by_category[name]


def test_the_rank_that_holds_most_is_shown() -> None:
    # The first stage has two micro-batches in flight, the last one has the logits of one.
    plan = plan_of("Llama", {"pipeline": 2, "micro_batch": 2, "precision": PURE})
    peaks = [estimate_stage(plan, stage).peak_bytes for stage in (0, 1)]
    assert estimate(plan).peak_bytes == max(peaks)
    assert estimate(plan).stage == peaks.index(max(peaks))


def test_running_out_of_memory_is_told() -> None:
    # 16 B for each of 1.56e9 parameters are 24.9e9 B; a T4 has 15.6e9.
    plan = Plan(
        Sizes(width=1600, layers=48, heads=25),
        gpu="T4",
        precision="float32",
        attention="efficient",
        batch=1,
        sequence=128,
    )
    simulation = simulate(plan)
    assert not simulation.fits
    assert "CUDA out of memory" in simulation.problem
    assert not estimate(plan).fits
