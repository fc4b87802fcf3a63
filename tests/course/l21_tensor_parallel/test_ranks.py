"""Two processes that share a transformer layer learn what one process learns."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import vramlab
from vramlab_course.lessons.l21_tensor_parallel.formulas import ORDERS, parameters
from vramlab_course.lessons.l21_tensor_parallel.ranks import (
    SIZES,
    make_feed_forward,
    make_layer,
    train,
)
from vramlab_course.programs.ranks import torchrun

pytestmark = pytest.mark.long


@cache
def two_ranks() -> list[dict[str, Any]]:
    return torchrun("vramlab_course.lessons.l21_tensor_parallel.ranks", 2)


@pytest.fixture(scope="module")
def one_process() -> dict[str, list[float]]:
    with vramlab.VirtualGPU("T4", values=True):
        return {"layer": train(make_layer()), "feed-forward": train(make_feed_forward())}


@pytest.mark.parametrize("division", ["tensor", "sequence"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_layer(one_process: dict[str, list[float]], division: str, rank: int) -> None:
    report = two_ranks()[rank][division]
    assert report["trained"] == pytest.approx(one_process["layer"], rel=0, abs=1e-9)
    assert report["own"] == parameters(SIZES.width, 2)


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_any_order_of_cuts(one_process: dict[str, list[float]], order: tuple[str, str]) -> None:
    for report in two_ranks():
        trained = report["orders"][", ".join(order)]["trained"]
        assert trained == pytest.approx(one_process["feed-forward"], rel=0, abs=1e-12)


def test_training_changed_it(one_process: dict[str, list[float]]) -> None:
    before = [x for p in make_on_host() for x in p.flatten().tolist()]
    moved = max(abs(x - y) for x, y in zip(before, one_process["layer"], strict=True))
    assert moved > 1e-3  # a million times what is allowed above


def make_on_host() -> list[Any]:
    with vramlab.VirtualGPU("T4", values=True):
        return [p.detach().cpu() for p in make_layer().parameters()]
