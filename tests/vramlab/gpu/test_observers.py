"""Observers see ops and what kernels allocate, from when they are added until removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from torch._ops import OpOverload

from vramlab.gpu import VirtualGPU
from vramlab.gpu.core.observers import Observer

MIB = 2**20


class Diary(Observer):
    """Writes down what it sees."""

    def __init__(self, told: list[Any] | None = None, name: str = "") -> None:
        self.told: list[Any] = [] if told is None else told
        self.name = name

    def op_begins(self, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.told.append(f"{self.name}{func}")

    def op_ends(self, func: OpOverload) -> None:
        self.told.append(f"{self.name}end of {func}")

    def kernel_takes(self, device_index: int, size_bytes: int, what: str, *, is_kept: bool) -> None:
        self.told.append((device_index, size_bytes, what, is_kept))


@pytest.fixture
def gpu() -> Any:
    with VirtualGPU("A100-40GB", torch_version="2.13") as gpu:
        yield gpu


def test_an_attached_gpu_is_observed_until_the_observer_is_removed(gpu: VirtualGPU) -> None:
    x = torch.zeros(4, device="cuda")
    with gpu.machine.observing(diary := Diary()):
        x.neg()
    x.exp()
    assert diary.told == ["aten.neg.default", "end of aten.neg.default"]


def test_who_asks_hears_what_an_op_gave_but_not_of_one_that_failed(gpu: VirtualGPU) -> None:
    class Results(Observer):
        def __init__(self) -> None:
            self.shapes: list[tuple[int, ...]] = []

        def op_ran(self, func: OpOverload, args: Any, kwargs: Any, result: Any) -> None:
            self.shapes.append(tuple(result.shape))

    x = torch.zeros(4, 2, device="cuda")
    with gpu.machine.observing(results := Results()):
        x.sum(dim=1)
        with pytest.raises(RuntimeError):
            x.mm(x)
    assert results.shapes == [(4,)]


def test_ops_that_an_op_calls_come_inside_of_it(gpu: VirtualGPU) -> None:
    """`tensor[mask] = number` is one kernel, masked_fill_."""
    x = torch.zeros(4, device="cuda")
    mask, value = x > 0, torch.tensor(1.0)
    with gpu.machine.observing(diary := Diary()):
        x[mask] = value
    assert diary.told == [
        "aten.index_put_.default",
        "aten.masked_fill_.Tensor",
        "end of aten.masked_fill_.Tensor",
        "end of aten.index_put_.default",
    ]


def test_the_last_to_hear_of_the_beginning_is_the_first_to_hear_of_the_end(
    gpu: VirtualGPU,
) -> None:
    told: list[str] = []
    x = torch.zeros(4, device="cuda")
    with gpu.machine.observing(Diary(told, "1 ")), gpu.machine.observing(Diary(told, "2 ")):
        x.neg()
    assert told == [
        "1 aten.neg.default",
        "2 aten.neg.default",
        "2 end of aten.neg.default",
        "1 end of aten.neg.default",
    ]


def test_an_observer_that_fails_leaves_the_others_in_step(gpu: VirtualGPU) -> None:
    class Fails(Observer):
        def op_begins(self, func: OpOverload, *rest: Any) -> None:
            raise ArithmeticError("mine")

    x = torch.zeros(4, device="cuda")
    with gpu.machine.observing(diary := Diary()):
        with gpu.machine.observing(Fails()), pytest.raises(ArithmeticError, match="mine"):
            x.neg()
        x.exp()
    assert diary.told == [
        "aten.neg.default",
        "end of aten.neg.default",
        "aten.exp.default",
        "end of aten.exp.default",
    ]


def test_a_workspace_is_told_when_it_is_allocated(gpu: VirtualGPU) -> None:
    """cuBLAS's: 8 MiB and 128 KiB on an A100, kept. Source: `getChosenWorkspaceSize` of PyTorch."""
    x = torch.zeros(4, 4, device="cuda")
    before_bytes = torch.cuda.memory_allocated()
    with gpu.machine.observing(diary := Diary()):
        product = x @ x
    workspace_bytes = 8 * MIB + 128 * 2**10
    assert diary.told == [
        "aten.mm.default",
        (0, workspace_bytes, "cublas", True),
        "end of aten.mm.default",
    ]
    # the product takes a block of 512 bytes
    assert torch.cuda.memory_allocated() - before_bytes == workspace_bytes + 512
    with gpu.machine.observing(diary := Diary()):
        product @ x
    assert diary.told == ["aten.mm.default", "end of aten.mm.default"]


def test_what_a_rule_takes_is_told(gpu: VirtualGPU) -> None:
    """An index of int32 is copied into one of int64: 8 bytes for each of 1,000."""
    x = torch.zeros(4, device="cuda")
    index = torch.zeros(1000, dtype=torch.int32, device="cuda")
    with gpu.machine.observing(diary := Diary()):
        x[index]
    taken = [each for each in diary.told if isinstance(each, tuple)]
    assert [(device, size, kept) for device, size, _, kept in taken] == [(0, 8000, False)]
