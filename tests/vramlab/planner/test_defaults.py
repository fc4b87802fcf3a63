"""What a plan is unless it says otherwise: each GPU of the catalogue has a plan of its defaults."""

from __future__ import annotations

from typing import Any

import pytest

from vramlab import catalogue
from vramlab.planner import Plan, UnsupportedPlan, find_model
from vramlab.planner.custom import CustomModel, Input
from vramlab.planner.defaults import defaults_for
from vramlab.programs.transformer_memory import PRECISIONS, Sizes

GPT2 = find_model("gpt2")


def text_model(most_tokens: int) -> CustomModel:
    return CustomModel("a model", object, (Input("input_ids=int64[B,S]"),), most_tokens=most_tokens)


@pytest.mark.parametrize("precision", [None, "float32", "pure bfloat16", "autocast float16"])
@pytest.mark.parametrize("name", catalogue.names())
def test_every_gpu_has_a_plan(name: str, precision: str | None) -> None:
    given: dict[str, Any] = {"gpu": name}
    if precision is not None:
        given["precision"] = precision
    plan = Plan(GPT2, **given, **defaults_for(GPT2, given))
    assert plan.precision in ([precision] if precision else PRECISIONS)
    new = plan.model.compute_capability >= (8, 0)  # Ampere has bfloat16, and flash attention
    if precision is None:
        assert plan.precision == ("autocast bfloat16" if new else "autocast float16")
    kernels = {"float32": "efficient", "pure bfloat16": "flash" if new else "math"}
    assert plan.attention == kernels.get(plan.precision, "flash" if new else "efficient")


@pytest.mark.parametrize(
    ("sizes", "given", "chosen"),
    [
        (GPT2, {}, {}),
        (GPT2, {"gpu": "T4"}, {"precision": "autocast float16", "attention": "efficient"}),
        (GPT2, {"gpu": "T4", "precision": "pure bfloat16"}, {"attention": "math"}),
        (GPT2, {"gpu": "T4", "attention": "eager"}, {"precision": "autocast float16"}),
        (Sizes(positions=128), {}, {"sequence": 128}),
        (Sizes(positions=128), {"sequence": 64}, {}),
        (text_model(512), {"gpu": "T4"}, {"precision": "autocast float16", "sequence": 512}),
        (text_model(4096), {}, {}),
    ],
)
def test_only_what_is_not_given_and_not_usual_is_chosen(
    sizes: Any, given: dict[str, Any], chosen: dict[str, Any]
) -> None:
    assert defaults_for(sizes, given) == chosen


def test_a_kernel_that_is_asked_for_and_not_there_is_refused() -> None:
    given: dict[str, Any] = {"gpu": "T4", "attention": "flash"}
    with pytest.raises(UnsupportedPlan, match="no kernel of flash attention"):
        Plan(GPT2, **given, **defaults_for(GPT2, given))
