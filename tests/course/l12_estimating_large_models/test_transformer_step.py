"""The transformer's closed form against measurements: what is kept, and the peak, to the byte.

Allocated bytes less unsplit remainders are compared; those depend on what the cache holds.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
import torch

import vramlab
from vramlab.measure.counters import unsplit_remainder_bytes
from vramlab.planner import Plan, estimate
from vramlab.planner.events import REMAINDERS
from vramlab.programs import transformer_memory
from vramlab.programs.transformer_memory import (
    GPT2,
    PRECISIONS,
    Attention,
    Checkpointing,
    Run,
    Sizes,
)
from vramlab_course.lessons.l12_estimating_large_models.transformer_step import (
    TransformerTraining,
    measure_step,
)

pytestmark = pytest.mark.long

SMALL = Sizes(vocabulary=2048, positions=512, width=256, layers=2, heads=4)
LLAMA = replace(
    SMALL,
    kv_heads=2,
    feed_forward=512,
    activation="swiglu",
    norm="rms",
    bias=False,
    tied=False,
    learned_positions=False,
)


STEP_BY_STEP: tuple[Attention, ...] = ("eager", "math")
FUSED: tuple[Attention, ...] = ("efficient", "flash")
CHECKPOINTING: tuple[Checkpointing, ...] = ("selective", "full")

KEPT = [
    *(
        (SMALL, Run(2, 128, precision, attention=attention, dropout=dropout))
        for precision, attention, dropout in product(
            ("float32", "autocast float16", "pure bfloat16"), STEP_BY_STEP, (True, False)
        )
    ),
    *(
        (sizes, Run(2, 100, precision, attention=attention))
        for sizes, precision, attention in product(
            (SMALL, LLAMA), ("autocast bfloat16", "pure bfloat16"), FUSED
        )
    ),
    *(
        (sizes, Run(2, 128, precision, checkpointing=checkpointing))
        for sizes, precision, checkpointing in product(
            (SMALL, LLAMA), ("autocast bfloat16",), CHECKPOINTING
        )
    ),
    (LLAMA, Run(2, 128)),
    (LLAMA, Run(2, 128, "autocast bfloat16", attention="math")),
    (replace(SMALL, causal=False), Run(2, 128, "autocast bfloat16")),
]


def test_what_the_forward_pass_keeps_is_predicted_to_the_byte() -> None:
    for sizes, run in KEPT:
        with vramlab.VirtualGPU("A100-40GB"):
            training = TransformerTraining(sizes, run)
            training.forward().backward()
            training.optimizer.zero_grad()
            before_bytes = torch.cuda.memory_allocated() - unsplit_remainder_bytes()
            loss = training.forward()
            after_bytes = torch.cuda.memory_allocated() - unsplit_remainder_bytes()
            del loss, training
        assert after_bytes - before_bytes == transformer_memory.kept_bytes(sizes, run), (sizes, run)


LARGER = replace(SMALL, width=512, heads=8, layers=3)
PEAKS = [
    ("A100-40GB", SMALL, Run(2, 64)),
    ("T4", LARGER, Run(8, 256, attention="efficient", checkpointing="full")),
    ("T4", LARGER, Run(8, 512, checkpointing="selective")),
    ("A100-40GB", LARGER, Run(8, 512, "autocast bfloat16", checkpointing="selective")),
    ("A100-40GB", LARGER, Run(8, 256, "autocast bfloat16", attention="flash")),
    ("A100-40GB", LARGER, Run(8, 512, "pure bfloat16")),
    # Heads of 160: the kernel works on 192 (a multiple of 64), and the step peaks in it.
    (
        "A100-40GB",
        replace(SMALL, width=320, heads=2, feed_forward=320, vocabulary=256),
        Run(8, 512, "pure bfloat16", attention="flash", checkpointing="full", optimizer="sgd"),
    ),
    ("RTX-4090", LARGER, Run(8, 512, "pure bfloat16", attention="flash", checkpointing="full")),
    ("H100", LLAMA, Run(8, 512, "bfloat16, float32 master", attention="math")),
    ("H100", LLAMA, Run(4, 128, "float16, float32 master", implementation="loop")),
    ("H100", replace(SMALL, causal=False), Run(8, 512, optimizer="sgd", dropout=False)),
    ("A10", replace(SMALL, vocabulary=8192), Run(1, 64, implementation="fused")),
    ("A10", replace(SMALL, vocabulary=8192, tied=False), Run(1, 64, implementation="fused")),
]


@pytest.mark.parametrize(("gpu", "sizes", "run"), PEAKS)
def test_the_peak_is_predicted_to_the_byte(gpu: str, sizes: Sizes, run: Run) -> None:
    with vramlab.VirtualGPU(gpu):
        measured = measure_step(sizes, run)
    predicted = estimate(Plan.of_run(sizes, run, gpu)).peak
    assert measured.kept_bytes == transformer_memory.kept_bytes(sizes, run)
    # Which blocks keep a remainder depends on what else was allocated: the rest is to the byte.
    requested = {name: size for name, size in predicted.bytes_by_category.items() if size}
    requested.pop(REMAINDERS, None)
    assert measured.peak_bytes - measured.unsplit_remainder_bytes == sum(requested.values())
    assert measured.bytes_by_category == requested


CUBLAS_BYTES, CUBLASLT_BYTES = 8_519_680, 2**20


@pytest.mark.parametrize(
    ("torch_version", "sizes", "checkpointing", "workspaces_bytes"),
    [
        # of the forward pass and of autograd's thread, each
        ("2.12", SMALL, "none", 2 * CUBLAS_BYTES),
        # with biases cuBLASLt's too, and on autograd's thread where the forward pass is run again
        ("2.11", SMALL, "none", 2 * CUBLAS_BYTES + CUBLASLT_BYTES),
        ("2.11", SMALL, "full", 2 * CUBLAS_BYTES + 2 * CUBLASLT_BYTES),
        ("2.11", LLAMA, "full", 2 * CUBLAS_BYTES),
    ],
)
def test_until_2_11_cublaslt_keeps_a_workspace_too(
    torch_version: str, sizes: Sizes, checkpointing: Checkpointing, workspaces_bytes: int
) -> None:
    run = Run(2, 64, checkpointing=checkpointing)
    with vramlab.VirtualGPU("A100-40GB", torch_version=torch_version):
        measured = measure_step(sizes, run)
    assert measured.bytes_by_category["workspaces"] == workspaces_bytes


def test_weights_and_states_are_in_the_dtypes_that_the_precision_names() -> None:
    for precision in PRECISIONS.values():
        with vramlab.VirtualGPU("A100-40GB"):
            training = TransformerTraining(SMALL, Run(1, 16, precision.name))
            training.step()
            weight = training.model.head.weight
            moments = training.states()[-1]
            dtypes = str(weight.dtype), str(moments.dtype)
            del training, weight, moments
        assert dtypes == (f"torch.{precision.weights}", f"torch.{precision.state_dtype}")


@pytest.mark.parametrize("name", ["GPT-2 small", "GPT-2 XL"])
def test_gpt2_has_the_parameters_of_transformers_model(name: str) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    sizes = GPT2[name]
    with torch.device("meta"):
        config = GPT2Config(n_embd=sizes.width, n_layer=sizes.layers, n_head=sizes.heads)
        model = GPT2LMHeadModel(config)
    assert sum(parameter.numel() for parameter in model.parameters()) == sizes.parameters()
