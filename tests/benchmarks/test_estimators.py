"""What tools are asked, on models whose numbers can be written down."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import nn

from benchmarks.estimates.cases import DOCUMENT, Case
from benchmarks.estimates.estimators import (
    TOOLS,
    Answer,
    accelerate_estimate,
    by_program,
    mem_tracker,
    torchinfo_summary,
    transformer_activations_bytes,
    transformer_math,
    transformer_parameters,
)
from benchmarks.estimates.programs import PROGRAMS, Program, Transformer
from vramlab.units import MIB

WEIGHT = 512 * 1024 * 4  # Linear(512, 1024) without bias, float32: 2 MiB
INPUT = 256 * 512 * 4  # 0.5 MiB
OUTPUT = 256 * 1024 * 4  # 1 MiB


def linear(batch: int = 256, trains: bool = True) -> Program:
    return Program(
        "linear",
        lambda: nn.Sequential(nn.Linear(512, 1024, bias=False)),
        lambda: torch.zeros(batch, 512),
        optimizer=torch.optim.AdamW if trains else None,
        grad=trains,
        adam=trains,
    )


def test_mem_tracker_counts_tensors_and_no_workspace() -> None:
    found = mem_tracker(linear())
    assert found["parameters"] == WEIGHT
    assert found["input"] == INPUT
    assert found["forward"] == OUTPUT
    assert found["after forward"] == WEIGHT + INPUT + OUTPUT
    assert found["after loss"] == WEIGHT + INPUT + OUTPUT + 4  # on meta it does not round
    assert found["after backward"] == 2 * WEIGHT + INPUT + OUTPUT + 4
    assert found["optimizer"] >= 2 * WEIGHT  # and, by version, two step counters of 4 B
    assert found["peak"] >= found["after backward"] + found["optimizer"]


def test_of_inference_mem_tracker_gives_the_forward_pass_alone() -> None:
    assert mem_tracker(linear(trains=False)) == {
        "parameters": WEIGHT,
        "input": INPUT,
        "forward": OUTPUT,
        "after forward": WEIGHT + INPUT + OUTPUT,
    }


def test_torchinfo_counts_every_output_twice() -> None:
    found = torchinfo_summary(linear())
    assert found["parameters"] == WEIGHT
    # torchinfo multiplies the input's size by 4 B and adds what its own containers take.
    assert 0 <= found["input"] - INPUT < 1024
    assert found["peak"] == found["input"] + WEIGHT + 2 * OUTPUT
    assert "peak" not in torchinfo_summary(linear(trains=False))


def test_accelerate_speaks_of_training_at_a_batch_of_one_only() -> None:
    assert accelerate_estimate(linear(batch=256)) == {"parameters": WEIGHT}
    # weights, gradients and two states
    assert accelerate_estimate(linear(batch=1)) == {"parameters": WEIGHT, "peak": 4 * WEIGHT}


def test_tools_for_models_say_nothing_of_a_tensor() -> None:
    tiny = PROGRAMS["tiny"]
    assert not mem_tracker(tiny)
    assert not torchinfo_summary(tiny)
    assert not accelerate_estimate(tiny)


# One layer of width 8 with 2 heads, 3 sequences of 4 tokens, 10 words.
SMALL = Transformer(
    layers=1, hidden=8, heads=2, feed_forward=32, vocabulary=10, batch=3, sequence=4
)


def test_transformer_math_counts_parameters_as_its_calculator() -> None:
    # embeddings 2·10·8 + 8·4 = 192; norms 8·8 + 2·8 = 80; attention 4·8·8 = 256;
    # feed-forward 2·8·32 = 512
    assert transformer_parameters(SMALL) == 192 + 80 + 256 + 512


def test_transformer_math_counts_activations_as_its_calculator() -> None:
    # 12 tokens · 1 layer · ((16·2 + 2)·8 + (2·2 + 1)·2·4) = 12 · (272 + 40)
    assert transformer_activations_bytes(SMALL, element_bytes=2) == 3744
    # 12 · ((16·4 + 2)·8 + (2·4 + 1)·2·4) = 12 · (528 + 72)
    assert transformer_activations_bytes(SMALL, element_bytes=4) == 7200


def test_transformer_math_speaks_of_transformers_that_train() -> None:
    assert not transformer_math(PROGRAMS["three-linear"])
    assert not transformer_math(PROGRAMS["bert-inference"])
    assert transformer_math(PROGRAMS["bert-training"]).keys() == {"parameters", "forward"}


def test_a_tool_is_asked_once_for_each_program() -> None:
    asked = []

    def predict(program: Program) -> dict[str, int]:
        asked.append(program.name)
        return {"peak": 3 * MIB}

    cases = [
        Case("one", "three-linear", "peak", 1, DOCUMENT, ""),
        Case("two", "three-linear", "forward", 1, DOCUMENT, ""),  # it says nothing of that
        Case("three", "fp16-linear", "peak", 1, DOCUMENT, ""),
    ]
    answer = by_program(predict)(cases)  # type: ignore[arg-type]
    assert answer == Answer({"one": 3 * MIB, "three": 3 * MIB})
    assert sorted(asked) == ["fp16-linear", "three-linear"]


def test_a_program_that_a_tool_cannot_run_is_a_failure_and_no_estimate() -> None:
    def fail(program: Program) -> dict[str, int]:
        raise RuntimeError("no such thing\nand more")

    answer = by_program(fail)([Case("one", "tiny", "peak", 1, DOCUMENT, "")])  # type: ignore[arg-type]
    assert answer == Answer({}, {"tiny": "RuntimeError: no such thing"})


def test_a_program_that_nobody_knows_is_nobodys_claim() -> None:
    cases = [Case("one", "experiment/of-its-own", "peak", 1, DOCUMENT, "")]
    assert by_program(mem_tracker)(cases) == Answer({})


def mixed(**options: object) -> Program:
    return replace(
        linear(),
        transformer=lambda: SMALL,
        precision="autocast-bf16",
        **options,  # type: ignore[arg-type]
    )


def test_transformer_math_adds_up_the_peak_of_mixed_precision() -> None:
    # 1040 parameters · (2 + 4 + 12) B and the activations above
    assert transformer_math(mixed()) == {"forward": 3744, "peak": 18 * 1040 + 3744}
    # with checkpointing 12 · (16·2 + 2)·8 = 3264
    assert transformer_math(mixed(checkpointing=True)) == {
        "forward": 3264,
        "peak": 18 * 1040 + 3264,
    }
    assert transformer_math(mixed(adam=False)) == {"forward": 3744}


def test_accelerate_takes_autocast_for_its_half_precisions() -> None:
    program = replace(linear(batch=1), precision="autocast-fp16")
    # gradients 1.5 times the weights, states twice: the states are the largest
    assert accelerate_estimate(program)["peak"] == 2 * WEIGHT
    assert "peak" not in accelerate_estimate(replace(linear(batch=1), adam=False))


def test_tools_without_casts_say_nothing_of_autocast() -> None:
    assert not mem_tracker(mixed())
    assert not torchinfo_summary(mixed())


def test_every_tool_says_what_it_predicts_and_leaves_out() -> None:
    assert all(tool.predicts and tool.leaves_out for tool in TOOLS.values())
