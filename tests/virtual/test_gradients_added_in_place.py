"""The engine adds up the gradients of a tensor that was used twice, in place since PyTorch 2.0."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from vramlab.measure import record_timeline
from vramlab.virtual import VirtualGPU

SIZE_BYTES = 4_000_000


def made_in_backward(
    program: Callable[[Tensor], Tensor], torch_version: str = "2.13", values: bool = False
) -> int:
    """How many tensors of the parameter's size the backward pass makes."""
    with VirtualGPU("T4", torch_version=torch_version, values=values):
        weight = torch.ones(1000, 1000, device="cuda", requires_grad=True)
        loss = program(weight)
        with record_timeline() as recording:
            loss.backward()
        made = [b for b in recording.timeline.blocks if b.born >= 0]
        return sum(block.requested_bytes == SIZE_BYTES for block in made)


def used_twice(weight: Tensor) -> Tensor:
    y = weight * 2
    return (y.tanh() + y.sigmoid()).sum()


def own_backward(weight: Tensor) -> Tensor:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            return gradient + gradient

    return Doubled.apply(weight * 2).mul(2).sum()  # type: ignore[no-any-return]


@pytest.mark.parametrize("values", [False, True])
def test_gradients_are_added_into_the_first_of_them(values: bool) -> None:
    # Of sigmoid, of tanh, of the product; before 2.0 their sum, too.
    assert made_in_backward(used_twice, values=values) == 3
    assert made_in_backward(used_twice, "1.13", values=values) == 4


def test_a_backward_pass_in_python_adds_as_it_says() -> None:
    # Of the product, of the sum, of the first product.
    assert made_in_backward(own_backward) == 3


def test_gradients_that_are_added_are_right() -> None:
    with VirtualGPU("T4", values=True):
        weight = torch.full((4, 4), 0.5, device="cuda", requires_grad=True)
        used_twice(weight).backward()
        on_host = torch.full((4, 4), 0.5, requires_grad=True)
        used_twice(on_host).backward()
        assert torch.equal(weight.grad.cpu(), on_host.grad)
