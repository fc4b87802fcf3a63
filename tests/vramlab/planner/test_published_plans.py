"""Plans against what others have published, each with its exact configuration.

Where a measurement differs, the test says by how much and why, as far as it is known.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from vramlab.planner import Estimate, Plan, estimate_stage, find_model, simulate
from vramlab.planner.models import llama_sizes
from vramlab.programs.transformer_memory import Sizes, layer_kept_bytes
from vramlab.units import GIB, MIB
from vramlab_course.lessons.l20_zero.formulas import PAPER_TABLE_GB, Stage

pytestmark = pytest.mark.long

# ---- arXiv 1910.02054 (ZeRO), figure 1: 7.5 billion parameters on 64 GPUs ----

SEVEN_BILLION = Sizes(width=4096, layers=36, heads=32, positions=128, vocabulary=50_304)


EMBEDDING = SEVEN_BILLION.vocabulary * SEVEN_BILLION.width


def states_per_parameter(stage: Stage) -> float:
    """Parameters, gradients and optimizer states at the peak of the backward pass's end."""
    precision = "float16, float32 master"
    plan = Plan(
        SEVEN_BILLION,
        "H200",
        batch=64,
        sequence=128,
        data=64,
        zero=stage,
        precision=precision,
        attention="eager",
        checkpointing="full",
    )
    sizes = plan.sizes
    found = estimate_stage(plan, 0).bytes_by_category
    kept = found["parameters"] + found["optimizer states"]
    # Gradients: DDP's buckets have all of them; FSDP2's shards are float32.
    gradients = 2 * sizes.parameters() if stage < 2 else 4 * sizes.parameters() / 64
    # ZeRO-2 keeps the parameters gathered in 16 bit, beside their shards.
    gathered = 2 * sizes.parameters() if stage == 2 else 0
    return (kept + gradients + gathered) / sizes.parameters()


@pytest.mark.parametrize(
    ("stage", "more"),
    [
        (0, 0),  # 16 B
        # 4 + 12 / 64 B in the paper. Whole parameters are dealt out: rank 0 has the embedding.
        (1, 12 * (EMBEDDING / SEVEN_BILLION.parameters() - 1 / 64)),
        (2, 2 / 64),  # 2 + 14 / 64 B in the paper; FSDP2's shards of gradients are float32
        (3, 0),  # 16 / 64 B
    ],
)
def test_zero_papers_table(stage: Stage, more: float) -> None:
    published = float(PAPER_TABLE_GB[stage]) / 7.5
    # Printed with one digit behind the point: 0.05 GB of 7.5e9 parameters are 0.0067 B each.
    assert states_per_parameter(stage) == pytest.approx(published + more, abs=0.0067)


# ---- arXiv 2205.05198: what selective recomputation saves ----


@pytest.mark.parametrize(
    ("heads", "width", "published_percent"),
    [(96, 12_288, 70), (128, 20_480, 65)],  # GPT-3 and MT-NLG, 2048 tokens; §5 of the paper
)
def test_selective_recomputation(heads: int, width: int, published_percent: int) -> None:
    sizes = Sizes(width=width, heads=heads, layers=1, positions=2048)
    plan = Plan(
        sizes,
        "H200",
        batch=1,
        sequence=2048,
        precision="pure bfloat16",
        attention="eager",
        dropout=True,
    )
    whole = layer_kept_bytes(sizes, plan.run)
    left = layer_kept_bytes(sizes, plan.but(checkpointing="selective").run)
    assert round(100 * (whole - left) / whole) == published_percent


def test_outputs_that_a_pipeline_holds() -> None:
    # Appendix B: 530 billion parameters, 8-way tensor and 35-way pipeline parallel, micro-batches
    # of one: letting go of the outputs that were sent saves 2.73 GB (which are GiB) in stage 0.
    # PyTorch's pipelining keeps them, and so does the plan: 2 x 2048 x 20480 x 35 B.
    sizes = Sizes(vocabulary=51_200, width=20_480, heads=128, layers=105, positions=2048)
    plan = Plan(
        sizes,
        "H200",
        batch=105,
        micro_batch=1,
        sequence=2048,
        precision="pure bfloat16",
        tensor=8,
        pipeline=35,
    )
    assert plan.in_flight(0) == 35
    outputs_bytes = plan.in_flight(0) * plan.run.rows_bytes(sizes.width, "bfloat16")
    assert outputs_bytes / GIB == pytest.approx(2.73, abs=0.005)


# ---- nanotron: llama-1B on H100s, rank 0, torch.cuda.max_memory_allocated ----
# huggingface.co/nanotron/old_bench, July 2024: 2048 wide, 32 heads, feed-forward of 4096, 4096
# tokens, bfloat16, flash attention, 1F1B. What each run holds beyond what it held when the step
# began is activations of micro-batches in flight; the first of 16 stages has 2 layers, of 4 has 7.

ONE_BILLION = llama_sizes(50_304, 2048, 28, 32, 4096, tied=False)


def in_flight_mib(layers: int, **options: int) -> float:
    plan = Plan(
        replace(ONE_BILLION, layers=layers),
        "H100",
        sequence=4096,
        precision="pure bfloat16",
        sequence_parallel=options.get("tensor", 1) > 1,
        **options,
    )
    found: Estimate = estimate_stage(plan, 0)
    # What is gathered along the sequence for a matrix is kept for its backward pass.
    kept = ("activations", "communication buffers") if plan.tensor > 1 else ("activations",)
    return sum(found.bytes_by_category[name] for name in kept) / MIB


def test_nanotron_sixteen_stages() -> None:
    measured = 12_603.56 - 3_274.04  # tp 1, pp 16, micro-batches of one
    predicted = in_flight_mib(32, batch=64, micro_batch=1, pipeline=16)
    # Ours: 36 numbers of each token's width a layer, of 8 MiB, and statistics; 32 layers in flight.
    # PyTorch also keeps each stage's output, 16 x 16 MiB, which nanotron lets go of; autograd does
    # not need them, so they are no activations. 1.2 % are missing; what they are is not known.
    # PyTorch 2.15 lets go of them, too; its peak is at a product, with its workspace, where layers
    # hold 32 MiB more.
    share = 0.988 if torch.__version__ < (2, 15) else 0.991
    assert predicted / measured == pytest.approx(share, abs=0.001)


def test_nanotron_four_stages_of_four_ranks() -> None:
    # tp 4, pp 4: from micro-batches of 4 to micro-batches of 16.
    measured = (47_092.10 - 13_109.32) / 12
    four, sixteen = (
        in_flight_mib(28, batch=8 * size, micro_batch=size, pipeline=4, tensor=4)
        for size in (4, 16)
    )
    predicted = (sixteen - four) / 12
    if torch.__version__ < (2, 15):
        predicted -= 4 * 16 / 4  # without the stages' outputs, as above
    # 3.3 % are missing. nanotron copies attention's output to another layout: 2 of 50
    # numbers of each token's width. PyTorch holds buffers to receive into, too, of 4 MiB: for each
    # of 8 micro-batches, and from 2.15 on for one. What else differs is not known.
    share = 0.967 if torch.__version__ < (2, 15) else 0.967 - 7 * 4 / measured
    assert predicted / measured == pytest.approx(share, abs=0.001)


# ---- torchtitan: Llama 3.1 8B on H100s, FSDP2, reserved ----


def test_torchtitan_eight_and_128_gpus() -> None:
    # benchmarks/llama3_h100_202412_torchtitan.md: 82.4, 77.0, 76.8 GiB on 8 GPUs and 67.0, 62.0,
    # 61.8 on 128, which are 15.4, 15.0 and 15.0 less. They are reserved bytes, so the plan is
    # simulated. Theirs checkpoints single ops; that takes the same on 8 and on 128.
    eight, many = (
        simulate(
            Plan(
                find_model("llama-3.1-8b"),
                "H100",
                batch=2 * data,
                sequence=8192,
                data=data,
                zero=3,
                precision="bfloat16, float32 master",
                checkpointing="full",
            )
        )
        for data in (8, 128)
    )
    assert 15.0 <= (eight.reserved_bytes - many.reserved_bytes) / GIB <= 15.4
    # Of that, 12 B x 8.03e9 (1/8 - 1/128) are allocated at the peak, where there are no gradients.
    parameters = find_model("llama-3.1-8b").parameters()
    shards_bytes = 12 * parameters * 15 // 128
    assert (eight.blocks_bytes - many.blocks_bytes) / GIB == pytest.approx(
        shards_bytes / GIB,
        rel=0.001,  # shards are rounded up to whole blocks
    )
