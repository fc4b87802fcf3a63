"""The table itself: names, order of steps, and what is given back when memory runs out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.distributed.fsdp  # defines the ops fsdp.*
from kernel_events import Recorder, meta

from vramlab.kernels import OUTPUTS, TABLE, Call, Give, Output, RuleTable, Step, Take, replay
from vramlab.kernels.rule_table.registry import overloads

aten = torch.ops.aten


SINCE = {
    "aten._scaled_addmm.default": (2, 15),
    "aten._scaled_addmm.out": (2, 15),
    "fsdp.chunk_cat_mixed_dtype.default": (2, 15),
}
"""Ops that came later than the oldest PyTorch that is supported."""


def test_every_name_in_the_table_is_an_op_of_this_torch() -> None:
    unknown = [name for rule in TABLE.rules for name in rule.ops if not list(overloads(name))]
    assert sorted(unknown) == [
        name for name, version in SINCE.items() if torch.__version__ < version
    ]


def test_a_packet_name_stands_for_all_its_overloads() -> None:
    assert list(overloads("aten.dot")) == [aten.dot.default, aten.dot.out]
    assert list(overloads("aten.dot.out")) == [aten.dot.out]
    assert list(overloads("aten.no_such_op")) == []


def test_a_rule_gets_the_ops_own_arguments() -> None:
    table = RuleTable()

    @table.rule("aten.sum.dim_IntList", takes="", source="")
    def sum_(
        call: Call, self: torch.Tensor, dim: list[int], keepdim: bool = False, **_: object
    ) -> list[Step]:
        return [Take(self.numel() + dim[0] + keepdim, "seen")]

    rule = table.find(aten.sum.dim_IntList)
    assert rule is not None
    steps = rule.steps(None, aten.sum.dim_IntList, (meta(5), [2]), {}, ())  # type: ignore[arg-type]
    assert list(steps) == [Take(7, "seen")]  # 5 numbers + dimension 2 + no keepdim


def test_two_rules_for_one_op_are_refused() -> None:
    table = RuleTable()
    for _ in range(2):
        table.rule("aten.mm.default", takes="", source="")(lambda call, *_: [])
    with pytest.raises(ValueError, match=r"two rules for aten\.mm\.default: keep one"):
        table.find(aten.mm.default)


def recorded(steps: list[Step], outputs: int) -> list[tuple[str, Any]]:
    recorder = Recorder([meta(1)] * outputs)
    replay(steps, outputs, recorder)
    return recorder.events


def test_temporaries_come_before_and_after_outputs_as_the_rule_says() -> None:
    steps: list[Step] = [Take(10, "a"), OUTPUTS, Take(20, "b"), Give("a"), Take(30, "c")]
    assert recorded(steps, 1) == [
        ("take", 10),
        ("output", 0),
        ("take", 20),
        ("give", 10),
        ("take", 30),
        ("give", 30),  # the rest is given back last taken first
        ("give", 20),
    ]


def test_outputs_can_be_named_one_by_one_and_have_larger_storages() -> None:
    steps: list[Step] = [Output(1), Take(10, "a"), Output(0, storage_bytes=64)]
    assert recorded(steps, 3) == [
        ("output", 1),
        ("take", 10),
        ("output", (0, 64)),
        ("output", 2),
        ("give", 10),
    ]


def test_of_two_temporaries_of_one_name_the_newest_is_given_back() -> None:
    assert recorded([Take(1, "a"), Take(2, "a"), Give("a")], 0) == [
        ("take", 1),
        ("take", 2),
        ("give", 2),
        ("give", 1),
    ]


def test_temporaries_are_given_back_when_an_output_finds_no_memory() -> None:
    class Full(Recorder):
        def output(self, index: int, storage_bytes: int | None) -> None:
            raise MemoryError

    full = Full([None])
    with pytest.raises(MemoryError):
        replay([Take(10, "a"), OUTPUTS], 1, full)
    assert full.events == [("take", 10), ("give", 10)]


def test_every_rule_is_listed_the_surest_first() -> None:
    lines = TABLE.surest_first()
    assert {line.ops for line in lines} == {rule.ops for rule in TABLE.rules}
    surest = [line.status.name for line in lines]
    assert surest == sorted(surest, key=["RECORDED", "PUBLISHED", "FROM_SOURCE"].index)
    assert all(line.takes and "PyTorch" in line.source for line in lines)
