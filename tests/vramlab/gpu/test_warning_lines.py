"""Warnings name the lines that they name on another device, whichever code warns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

from vramlab.gpu import VirtualGPU
from vramlab.gpu.core.patching.warning_lines import warn


@pytest.fixture(autouse=True)
def _each_time() -> Iterator[None]:
    torch.set_warn_always(True)  # C++ warns of some things once only
    yield
    torch.set_warn_always(False)


def implicit_dimension(device: str) -> None:
    functional.softmax(torch.ones(3, 3, device=device))  # Python code, stacklevel=3


def implicit_dimension_of_a_module(device: str) -> None:
    nn.Softmax()(torch.ones(3, 3, device=device))  # stacklevel=5


def sizes_differ(device: str) -> None:
    ones = torch.ones(3, 3, device=device)
    functional.mse_loss(
        ones,
        ones[:1],
    )


def gradient_of_no_leaf(device: str) -> None:
    y = torch.ones(3, device=device, requires_grad=True) * 2
    _ = y.grad  # C++


def within_pytorch(device: str) -> None:
    ones = torch.ones(3, device=device)
    torch.meshgrid(ones, ones)  # C++, called by torch/functional.py


def in_a_hook(device: str) -> None:
    def hook(grad: torch.Tensor) -> None:
        functional.softmax(torch.ones(3, 3, device=device))

    x = torch.ones(3, device=device, requires_grad=True)
    x.register_hook(hook)
    x.sum().backward()


def places(action: Callable[[], Any]) -> list[tuple[str, int]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [(one.filename, one.lineno) for one in caught]


@pytest.mark.parametrize(
    "action",
    [
        implicit_dimension,
        sizes_differ,
        gradient_of_no_leaf,
        within_pytorch,
        in_a_hook,
    ],
)
def test_pytorch_warns_at_the_line_that_it_names_on_the_host(
    action: Callable[[str], None],
) -> None:
    expected = places(lambda: action("cpu"))
    assert len(expected) == 1
    with VirtualGPU("T4"):
        assert places(lambda: action("cuda")) == expected


def test_a_line_between_pytorchs_and_the_programs_is_not_named() -> None:
    # On the host a line of torch/nn/modules/module.py, which has grown since the 5 was written.
    with VirtualGPU("T4"):
        named = places(lambda: implicit_dimension_of_a_module("cuda"))
    line = implicit_dimension_of_a_module.__code__.co_firstlineno + 1
    assert named == [(__file__, line)]


def test_the_programs_own_warnings_are_left_alone() -> None:
    def old() -> None:
        torch.ones(1, device="cuda")
        warnings.warn("old", stacklevel=2)

    def use() -> None:
        old()

    with VirtualGPU("T4"):
        assert places(use) == [(__file__, use.__code__.co_firstlineno + 1)]


def test_vramlabs_own_warnings_name_the_line_of_the_program() -> None:
    def compiled() -> None:
        torch.compile(lambda y: y)

    def compiled_by_pytorch() -> None:
        nn.Linear(2, 2).compile()

    def profiled() -> None:
        torch.autograd.profiler.profile(use_device="cuda")

    for action in (compiled, compiled_by_pytorch, profiled):
        with VirtualGPU("T4"):
            assert places(action) == [(__file__, action.__code__.co_firstlineno + 1)]


def test_where_no_program_runs_a_warning_is_given_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vramlab.gpu.core.patching.warning_lines.user_frame", lambda: None)
    with pytest.warns(UserWarning, match="words"):
        warn("words")
