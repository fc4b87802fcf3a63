"""The explorer of saved tensors: chains, names, and what autograd forbids in place."""

from __future__ import annotations

from typing import Any

import pytest

from vramlab.units import MIB
from vramlab_course.lessons.l08_what_operators_save.explorer import (
    ChainMemory,
    measure_chain,
)

UNIT = 16  # MiB: 4096 x 1024 x 4 B


def measure(first: str, second: str = "-", third: str = "-", **settings: Any) -> ChainMemory:
    usual = {"in_place": "no", "names": "no", "rows": 4096, "width": 1024, "dtype": "float32"}
    return measure_chain(first=first, second=second, third=third, **{**usual, **settings})


@pytest.mark.parametrize(
    ("chain", "kept", "grown"),
    [
        (("linear", "gelu", "linear"), 2, 3),  # GELU's input, its output; the chain's output
        (("linear", "relu", "linear"), 1, 2),  # ReLU's output is the second layer's input
        (("linear", "linear"), 1, 2),
        (("x + 1", "2 * x"), 0, 1),
        (("2 * x", "x * sigmoid(x)"), 2, 3),
        (("2 * x", "silu"), 1, 2),
    ],
)
def test_chains(chain: tuple[str, ...], kept: int, grown: int) -> None:
    memory = measure(*chain)
    assert memory.saved.kept_bytes == kept * UNIT * MIB
    assert memory.growth_bytes == grown * UNIT * MIB
    assert memory.error == ""


def test_a_name_holds_what_nobody_needs() -> None:
    # ReLU keeps its output alone; the linear layer's output has a name.
    assert measure("linear", "relu").growth_bytes == UNIT * MIB
    assert measure("linear", "relu", names="yes").growth_bytes == 2 * UNIT * MIB


def test_in_place_where_it_is_allowed() -> None:
    plain, written = (measure("linear", "relu", "linear", in_place=way) for way in ("no", "yes"))
    assert plain.growth_bytes == written.growth_bytes == 2 * UNIT * MIB
    assert written.error == ""


def test_in_place_where_autograd_forbids_it() -> None:
    memory = measure("sigmoid", "relu", in_place="yes")
    assert "has been modified by an inplace operation" in memory.error


def test_dropout_in_place_keeps_floats_instead_of_bools() -> None:
    # 16 MiB of factors, 0 or 1 / (1 - p), instead of 4 MiB of yes and no
    assert measure("2 * x", "dropout").saved.kept_bytes == UNIT // 4 * MIB
    assert measure("2 * x", "dropout", in_place="yes").saved.kept_bytes == UNIT * MIB
