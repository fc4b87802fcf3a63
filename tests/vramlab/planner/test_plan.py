"""Plans: what they come to, and every one that is refused, with a way out."""

from __future__ import annotations

from typing import Any

import pytest

from vramlab.planner import Plan, UnevenParts, UnsupportedPlan, about_bytes, find_model
from vramlab.programs.transformer_memory import Sizes

LLAMA = find_model("llama-3.2-1b")
GPT = find_model("gpt2")
PURE, MASTER = "pure bfloat16", "bfloat16, float32 master"


# ---- What it comes to ----


def test_ranks_and_micro_batches_multiply() -> None:
    plan = Plan(
        LLAMA, batch=48, micro_batch=2, data=3, zero=2, tensor=2, pipeline=4, precision=PURE
    )
    assert plan.ranks == 3 * 2 * 4
    assert plan.at_a_time == 2
    assert plan.micro_batches == 48 // 3 // 2
    assert (plan.run.batch, plan.run.sequence, plan.run.precision) == (2, 1024, PURE)


def test_a_gpu_takes_all_of_its_share_if_nothing_is_said() -> None:
    plan = Plan(GPT, batch=12, data=3)
    assert (plan.at_a_time, plan.micro_batches) == (4, 1)


def test_a_rank_has_its_part_of_its_stages_layers() -> None:
    plan = Plan(LLAMA, tensor=2, pipeline=4, micro_batch=2, precision=PURE)
    # 16 layers in 4 stages; 32 heads for 2 ranks.
    assert (plan.part(1).layers, plan.part(1).heads) == (4, 16)
    assert (plan.stage_sizes(1).layers, plan.stage_sizes(1).heads) == (4, 32)
    assert [plan.part(stage).embeds for stage in range(4)] == [True, False, False, False]


def test_ranks_share_each_sequence_only_if_asked_to() -> None:
    options: dict[str, Any] = {"tensor": 4, "precision": PURE}
    assert Plan(LLAMA, **options).run.sequence_ranks == 1
    assert Plan(LLAMA, **options, sequence_parallel=True).run.sequence_ranks == 4


@pytest.mark.parametrize(
    ("schedule", "stage", "most", "after_first"),
    [
        # 1F1B: as many as there are stages from here on; one ends before the next one begins.
        ("1F1B", 0, 4, 4),
        ("1F1B", 2, 2, 2),
        ("1F1B", 3, 1, 1),
        # GPipe: all 8, and no new ones after the first backward pass.
        ("GPipe", 0, 8, 7),
        ("GPipe", 3, 8, 7),
    ],
)
def test_what_is_in_flight_is_the_schedules(
    schedule: str, stage: int, most: int, after_first: int
) -> None:
    plan = Plan(GPT, batch=8, micro_batch=1, pipeline=4, schedule=schedule)  # type: ignore[arg-type]
    assert plan.in_flight(stage) == most
    assert plan.in_flight(stage, after_first=True) == after_first


def test_a_plan_with_changes_is_another_one() -> None:
    plan = Plan(GPT)
    assert plan.run.sequence == 1024  # which is kept
    changed = plan.but(sequence=512)
    assert (changed.run.sequence, plan.run.sequence) == (512, 1024)
    assert changed == Plan(GPT, sequence=512)


# ---- What is refused ----

REFUSED: list[tuple[dict[str, Any], str]] = [
    # Names.
    (
        {"precision": "float8"},
        "invalid precision 'float8': use one of 'float32', 'autocast bfloat16', ",
    ),
    (
        {"optimizer": "lion"},
        "invalid optimizer 'lion': use one of 'sgd', 'sgd with momentum', 'adamw'",
    ),
    ({"implementation": "C"}, "invalid implementation 'C': use one of 'loop', 'foreach', 'fused'"),
    (
        {"attention": "none"},
        "invalid attention 'none': use one of 'eager', 'math', 'efficient', 'flash'",
    ),
    (
        {"checkpointing": "half"},
        "invalid checkpointing 'half': use one of 'none', 'selective', 'full'",
    ),
    (
        {"offload": "all"},
        "invalid offload 'all': use one of 'nothing', 'optimizer', 'activations', 'both'",
    ),
    ({"schedule": "DualPipe"}, "invalid schedule 'DualPipe': use one of 'GPipe', '1F1B'"),
    ({"zero": 4}, "invalid zero 4: use one of 0, 1, 2, 3"),
    # Numbers.
    ({"batch": 0}, "invalid batch 0: use at least 1"),
    ({"sequence": -1}, "invalid sequence -1: use at least 1"),
    ({"data": 0}, "invalid data 0: use at least 1"),
    ({"tensor": 0}, "invalid tensor 0: use at least 1"),
    ({"pipeline": 0}, "invalid pipeline 0: use at least 1"),
    ({"micro_batch": 0}, "invalid micro_batch 0: use at least 1"),
    (
        {"batch": 8, "data": 2, "micro_batch": 3},
        "a batch of 8 cannot be divided into micro-batches of 3 on 2 data-parallel ranks: "
        "choose a multiple of 6",
    ),
    ({"batch": 8, "micro_batch": 16}, "choose a multiple of 16"),
    ({"batch": 4, "data": 8}, "choose a multiple of 8"),
    ({"sequence": 1025}, "a sequence of 1025 tokens is too long: the model supports at most 1024"),
    # Kernels.
    (
        {"precision": "float32"},
        "flash attention has no float32 kernel: choose another attention, or a 16-bit precision",
    ),
    ({"precision": "float32", "data": 2, "zero": 1}, "flash attention has no float32 kernel"),
    (
        {"gpu": "T4"},
        "a GPU of compute capability 7.5 has no kernel of flash attention for bfloat16: choose "
        "another attention, or another precision",
    ),
    ({"gpu": "V100-16GB", "attention": "efficient"}, "7.0 has no kernel of efficient attention"),
    # What is divided among whom.
    (
        {"zero": 2},
        "ZeRO-2 needs several data-parallel ranks, but data is 1",
    ),
    (
        {"sequence_parallel": True},
        "sequence parallelism needs several tensor-parallel ranks, but tensor is 1",
    ),
    (
        {"tensor": 4, "sequence_parallel": True, "sequence": 1022},
        "a sequence of 1022 tokens cannot be divided by 4",
    ),
    # What PyTorch has.
    (
        {"tensor": 2, "data": 2, "zero": 1},
        "use zero=2 or zero=3 (FSDP2), or tensor=1, or data=1",
    ),
    (
        {"data": 2, "zero": 1, "precision": MASTER, "optimizer": "sgd"},
        "ZeRO-1 with float32 master weights works only with adamw, not with sgd",
    ),
    (
        {"tensor": 2, "precision": MASTER},
        "use data=2 or more with zero=2 or 3, or another precision",
    ),
    (
        {"pipeline": 4, "batch": 6, "micro_batch": 2},
        "there are 4 stages and 3 micro-batches per step",
    ),
    # What is kept on the host.
    (
        {"offload": "optimizer", "data": 2, "zero": 1},
        "use zero=0, or zero=2 or 3 (FSDP2's CPUOffloadPolicy)",
    ),
    ({"offload": "both", "data": 2, "zero": 1}, "ZeroRedundancyOptimizer (ZeRO-1)"),
    (
        {"offload": "optimizer", "tensor": 2},
        "only FSDP2 can offload the optimizer: use data=2 or more with zero=2 or 3",
    ),
    (
        {"offload": "activations", "data": 2, "zero": 3},
        "use zero=0 or 1 and tensor=1, or use checkpointing",
    ),
    ({"offload": "activations", "tensor": 2}, "activations cannot be offloaded with"),
]

SIZES = Sizes(vocabulary=1024)


@pytest.mark.parametrize(("options", "said"), REFUSED, ids=[str(each[0]) for each in REFUSED])
def test_what_cannot_be_is_refused_with_a_way_out(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UnsupportedPlan) as failed:
        Plan(SIZES, **options)
    assert said in str(failed.value)


@pytest.mark.parametrize(
    "options",
    [
        # The ways out that are named above.
        {"tensor": 2, "data": 2, "zero": 2},
        {"tensor": 2, "data": 2, "zero": 3, "precision": MASTER},
        {"tensor": 2, "data": 2, "zero": 3, "offload": "optimizer"},
        {"data": 2, "zero": 1, "precision": MASTER},
        {"data": 2, "zero": 1, "offload": "activations"},
        {"data": 2, "zero": 3, "offload": "optimizer"},
        {"pipeline": 4, "batch": 6, "micro_batch": 2, "schedule": "GPipe"},
        {"pipeline": 4, "batch": 8, "micro_batch": 2},
        {"gpu": "T4", "precision": "float32", "attention": "efficient"},
        {"sequence": 1024},
    ],
    ids=str,
)
def test_the_ways_out_are_ways(options: dict[str, Any]) -> None:
    assert Plan(SIZES, **options).ranks >= 1


def test_models_that_cannot_be_cut_are_refused_at_once() -> None:
    with pytest.raises(UnevenParts, match="2 tensor-parallel ranks do not divide 50257 voc"):
        Plan(GPT, tensor=2, precision=PURE)
    with pytest.raises(UnevenParts, match="12 layers are too few for 16"):
        Plan(GPT, batch=16, micro_batch=1, pipeline=16)


@pytest.mark.parametrize(
    ("stage", "fewer"),
    [
        (0, 31),  # a gradient of 32
        (1, 28 + 31),  # and 4 inputs of 32, because 3 micro-batches are in flight
        (2, 29 + 31),
        (3, 0),  # losses keep all inputs
    ],
)
def test_since_2_15_a_stage_of_a_pipeline_receives_as_it_needs(
    monkeypatch: pytest.MonkeyPatch, stage: int, fewer: int
) -> None:
    """A buffer has 1 x 1024 x 768 numbers of 4 B, 3 MiB."""
    plan = Plan(find_model("gpt2"), sequence=1024, pipeline=4, batch=32, micro_batch=1)
    sizes = []
    for version in ((2, 14), (2, 15)):
        monkeypatch.setattr("vramlab.planner.about.installed_version", lambda found=version: found)
        sizes.append(about_bytes(plan, stage))
    assert sizes[0] - sizes[1] == fewer * 3 * 2**20
