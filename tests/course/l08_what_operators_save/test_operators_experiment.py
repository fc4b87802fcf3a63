"""Hooks, allocator and formula tell the same about what operators keep."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.cuda_rules.sizes import block_bytes
from vramlab.measure import Whose, saved_by
from vramlab_course import experiments
from vramlab_course.lessons.l08_what_operators_save.mlp_block_experiment import MLP
from vramlab_course.lessons.l08_what_operators_save.mlp_block_formulas import MLPBlock
from vramlab_course.lessons.l08_what_operators_save.operators_experiment import (
    OPERATORS,
    Operator,
    operator,
    operators_table,
    saved_by_operator,
)
from vramlab_course.lessons.l08_what_operators_save.operators_formulas import KEEPS, held_bytes


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("A100-40GB") as attached:
        yield attached


def test_the_operators_are_those_of_the_formula() -> None:
    assert tuple(each.name for each in OPERATORS) == tuple(KEEPS)
    with pytest.raises(KeyError, match="no operator 'warp'; there are: relu, leaky_relu"):
        operator("warp")


@pytest.mark.parametrize("chosen", OPERATORS, ids=lambda each: each.name)
def test_the_hooks_see_what_the_formula_says(chosen: Operator) -> None:
    storages = {}
    for number, tensor in enumerate(saved_by_operator(chosen.name).tensors):
        if tensor.whose in (Whose.INPUT, Whose.OUTPUT):
            storages[tensor.name] = tensor.storage_bytes
        elif tensor.whose is Whose.NEW:
            storages[str(number)] = tensor.storage_bytes
    assert sum(map(block_bytes, storages.values())) == held_bytes(chosen.name, chosen.sizes)


def test_the_allocator_agrees_in_float16() -> None:
    outcome = experiments.run("operators-save", dtype="float16")
    # Two are tried in float32 alone, and batch norm is cuDNN's.
    assert len(outcome.result.stages) == len(OPERATORS) - 3
    for stage in outcome.result.stages:
        assert stage.growth_bytes == stage.expectation().predicted_bytes, stage.name


def test_rows_of_the_table() -> None:
    rows = operators_table("relu", "gelu", "x * y", "x[i]", "max_pool2d", "cat").rows
    assert rows == (
        ("relu", "-", "yes", "-", "4"),
        ("gelu", "yes", "-", "-", "4"),
        ("x * y", "both", "-", "-", "8"),
        ("x[i]", "the second, int64", "-", "-", "0.01"),
        ("max_pool2d", "yes", "-", "16 x 64 x 32 x 32 int64", "6"),
        ("cat", "-", "-", "-", "0"),
    )


@pytest.mark.parametrize("activation", ["gelu", "silu", "relu", "tanh"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_the_block_saves(activation: str, dtype: str) -> None:
    block = MLPBlock(2, 64, 256, activation=activation, dtype=dtype)
    with torch.device("cuda"):
        model = MLP(256, activation=activation).to(getattr(torch, dtype))
        x = torch.ones(2, 64, 256, dtype=getattr(torch, dtype), requires_grad=True)
    saved = saved_by(lambda: model(x), model, inputs=x)
    assert saved.kept_bytes + x.nbytes == block.kept_bytes
