"""What is called below autograd, and what each call takes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.nn import functional

from vramlab import VirtualGPU
from vramlab.measure import record_operators


@pytest.fixture(autouse=True)
def gpu() -> Iterator[VirtualGPU]:
    with VirtualGPU("T4") as attached:
        yield attached


def numbers(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, device="cuda", requires_grad=True)


def test_a_linear_layer_is_one_product_forward_and_two_backward() -> None:
    x, weight, bias = numbers(64, 32), numbers(16, 32), numbers(16)
    with record_operators() as calls:
        functional.linear(x, weight, bias).backward(torch.ones(64, 16, device="cuda"))
    products = [call for call in calls.calls if call.flops]
    assert [(call.name, call.backward) for call in products] == [
        ("aten.addmm", False),
        ("aten.mm", True),
        ("aten.mm", True),
    ]
    # a multiplication and an addition for each of 64 x 16 x 32
    assert {call.flops for call in products} == {2 * 64 * 16 * 32}
    assert calls.flops == 3 * 2 * 64 * 16 * 32
    forward = products[0]
    assert forward.new_bytes == 64 * 16 * 4
    assert forward.moved_bytes == (64 * 32 + 16 * 32 + 16 + 64 * 16) * 4


def test_views_take_nothing_and_copies_do() -> None:
    x = numbers(8, 4).detach()
    with record_operators() as calls:
        x.view(-1)
        x.reshape(-1)
        x.t()
        x.squeeze()
        x.t().reshape(-1)
    assert {call.name for call in calls.calls if call.is_view} >= {"aten.view", "aten.t"}
    (copy,) = [call for call in calls.kernels if call.new_bytes]
    assert (copy.name, copy.new_bytes) == ("aten.clone", 8 * 4 * 4)


def test_in_place_is_a_kernel_without_new_memory() -> None:
    x = numbers(1000).detach()
    with record_operators() as calls:
        torch.relu(x)
        torch.relu_(x)
    assert [(call.name, call.is_view, call.new_bytes) for call in calls.calls] == [
        ("aten.relu", False, 4000),
        ("aten.relu_", False, 0),
    ]


def test_an_expanded_tensor_is_read_where_it_is_stored() -> None:
    x = numbers(1).detach().expand(1000)
    with record_operators() as calls:
        x + 1
    assert calls.kernels[0].moved_bytes == 4 + 4000
