"""Who holds a block: the shortest way to it, through all that Python and autograd hold with."""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.measure import Holder, holders


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("T4") as attached:
        yield attached


def steps(way: tuple[Holder, ...]) -> list[str]:
    return [holder.step for holder in way]


class Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def method(self) -> None:
        pass


class Plain:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def closure(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    return lambda: tensor


def failed(tensor: torch.Tensor) -> Exception | None:
    try:
        raise ValueError
    except ValueError as error:
        return error


def generator(tensor: torch.Tensor) -> Iterator[int]:
    yield 1
    assert tensor.is_cuda


def started(tensor: torch.Tensor) -> Iterator[int]:
    begun = generator(tensor)
    next(begun)
    return begun


WAYS: dict[str, tuple[Callable[[torch.Tensor], Any], list[str]]] = {
    "a list": (lambda tensor: [0, tensor], ["[1]"]),
    "a deque": (lambda tensor: deque([tensor]), ["[0]"]),
    "a set": (lambda tensor: {tensor}, ["in it"]),
    "a dict": (lambda tensor: {"kept": (tensor,)}, ["['kept']", "[0]"]),
    "a long key": (lambda tensor: {"a" * 40: tensor}, ["['aaaaaaaaaa…]"]),
    "an attribute": (Plain, [".tensor"]),
    "a slot": (Slotted, [".tensor"]),
    "a method": (lambda tensor: Slotted(tensor).method, [".__self__", ".tensor"]),
    "a closure": (closure, ["closure's tensor"]),
    "a partial": (lambda tensor: functools.partial(print, tensor), [".args", "[0]"]),
    "a default": (lambda tensor: eval("lambda x=t: x", {"t": tensor}), [".__defaults__", "[0]"]),
    "an error": (failed, [".__traceback__", ".tb_frame", "tensor"]),
    "a generator": (started, [".gi_frame", "tensor"]),
}


@pytest.mark.parametrize("make", WAYS.values(), ids=WAYS)
def test_the_way_through(make: tuple[Callable[[torch.Tensor], Any], list[str]]) -> None:
    build, expected = make
    tensor = torch.zeros(1000, device="cuda")
    address = tensor.data_ptr()
    kept = build(tensor)
    way = holders(address, {"kept": kept})
    assert steps(way) == ["kept", *expected]
    assert way[-1].kind == "Tensor"


def test_a_view_holds_the_block_of_what_it_views() -> None:
    tensor = torch.zeros(1000, device="cuda")
    assert steps(holders(tensor.data_ptr(), {"view": tensor[10:20]})) == ["view"]


def test_a_loss_holds_activations_by_its_graph_until_backward_has_run() -> None:
    hidden = torch.zeros(1024, device="cuda", requires_grad=True) + 1
    address = hidden.data_ptr()
    loss = hidden.square().sum()
    del hidden
    way = holders(address, {"loss": loss})
    assert [str(holder) for holder in way] == [
        "loss: Tensor",
        ".grad_fn: SumBackward0",
        ".next_functions: PowBackward0",
        "saved 'self': Tensor",
    ]
    loss.backward()
    assert holders(address, {"loss": loss}) == ()


def test_a_module_is_held_by_its_attributes_and_hooks() -> None:
    model = nn.Sequential(nn.Linear(8, 8)).to("cuda")
    weight = model[0].weight
    way = holders(weight.data_ptr(), {"model": model})
    assert steps(way) == ["model", "._modules", "['0']", "._parameters", "['weight']"]
    seen = torch.zeros(8, device="cuda")
    model[0].register_forward_hook(lambda *_: seen.sum())
    way = holders(seen.data_ptr(), {"model": model})
    *module, hook, end = way
    assert steps((*module,)) == ["model", "._modules", "['0']", "._forward_hooks"]
    assert (hook.kind, end.step) == ("function", "closure's seen")


def test_what_only_a_cycle_holds_is_not_found_and_the_search_is_bounded() -> None:
    cycle: list[Any] = [torch.zeros(1000, device="cuda")]
    cycle.append(cycle)
    address = cycle[0].data_ptr()
    assert steps(holders(address, {"cycle": cycle})) == ["cycle", "[0]"]
    assert holders(address, {"other": [1, 2]}) == ()
    assert holders(address, {"far": [[], [], [cycle]]}, most_objects=3) == ()


def test_a_block_of_another_gpu_is_another_block() -> None:
    with VirtualGPU("T4", 2):
        first, second = (torch.zeros(8, device=f"cuda:{index}") for index in range(2))
        names = {"first": first, "second": second}
        assert steps(holders(second.data_ptr(), names, device=1)) == ["second"]
