"""Gradients of selections are scattered into zeros in place, as on CUDA outside dispatch modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from vramlab import VirtualGPU
from vramlab.units import MIB


def peak_of_backward(output: torch.Tensor) -> int:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    output.backward(torch.ones_like(output))
    return torch.cuda.max_memory_allocated() - before


def test_the_gradient_of_a_maximum_is_one_tensor() -> None:
    with VirtualGPU("A100-40GB"):
        x = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
        maximum = x.max(dim=1).values
        # 4 MiB of zeros that become the gradient; the ones are 1024 floats, one block of 4 KiB
        assert peak_of_backward(maximum) == 4 * MIB + 4096


def test_the_gradient_of_an_index_is_one_tensor() -> None:
    with VirtualGPU("A100-40GB") as gpu:
        x = torch.zeros(1024, 1024, device="cuda", requires_grad=True)
        rows = x[torch.arange(512, device="cuda")]
        peak_of_backward(rows)
        assert torch.ops.aten._index_put_impl_.default in gpu.dispatcher.seen
        assert torch.ops.aten.index_put.default not in gpu.dispatcher.seen


def test_a_program_that_scatters_out_of_place_keeps_both() -> None:
    with VirtualGPU("A100-40GB"):
        x = torch.zeros(1024, 1024, device="cuda")
        index = torch.zeros(1, 1024, dtype=torch.int64, device="cuda")
        before = torch.cuda.memory_allocated()
        scattered = x.scatter(0, index, torch.ones(1, 1024, device="cuda"))
        assert torch.cuda.memory_allocated() - before == 4 * MIB
        assert scattered.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("select", [lambda x: x[[1, 1, 3]], lambda x: x.max(dim=1).values])
def test_values_are_those_of_the_cpu(select) -> None:  # type: ignore[no-untyped-def]
    values = torch.arange(12.0).reshape(4, 3)
    expected = values.clone().requires_grad_()
    select(expected).sum().backward()
    with VirtualGPU("T4", values=True):
        x = values.cuda().requires_grad_()
        select(x).sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad.cpu(), expected.grad)  # type: ignore[arg-type]


# What Python code does while autograd's node is running, is the program's, and out of place.


def scatters_in_a_hook(x: Tensor, keep: list[Tensor]) -> Tensor:
    def hook(gradients: Any, _: Any) -> None:
        index = torch.zeros(1, 4, dtype=torch.int64, device=x.device)
        keep.append(x.detach().scatter(0, index, gradients[0][:1]))

    maximum = x.max(dim=0).values
    maximum.grad_fn.register_hook(hook)  # type: ignore[union-attr]
    return maximum * 3


def puts_in_a_hook(x: Tensor, keep: list[Tensor]) -> Tensor:
    def hook(gradients: Any, _: Any) -> None:
        keep.append(x.detach().index_put((index,), gradients[0][:1]))

    index = torch.zeros(1, dtype=torch.int64, device=x.device)
    row = x[index]
    row.grad_fn.register_hook(hook)  # type: ignore[union-attr]
    return row * 3


def puts_in_what_a_checkpoint_repeats(x: Tensor, keep: list[Tensor]) -> Tensor:
    index = torch.zeros(1, dtype=torch.int64, device=x.device)

    def layer(x: Tensor, row: Tensor) -> Tensor:
        keep.append(x)
        return x.index_put((index,), row).sin()[index]  # the gradient of [index] needs the index

    y = x * 2
    return checkpoint(layer, y, y[1:2].clone(), use_reentrant=False)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "program", [scatters_in_a_hook, puts_in_a_hook, puts_in_what_a_checkpoint_repeats]
)
def test_python_code_in_a_backward_pass_is_left_as_it_is(
    program: Callable[[Tensor, list[Tensor]], Tensor],
) -> None:
    values = torch.arange(16.0).reshape(4, 4)
    on_host, kept_on_host = values.clone().requires_grad_(), list[Tensor]()
    program(on_host, kept_on_host).sum().backward()
    with VirtualGPU("T4", values=True):
        x, kept = values.cuda().requires_grad_(), list[Tensor]()
        program(x, kept).sum().backward()
        assert x.grad is not None
        assert torch.equal(x.cpu(), values)
        assert torch.equal(x.grad.cpu(), on_host.grad)  # type: ignore[arg-type]
        assert len(kept) == len(kept_on_host)
        for ours, theirs in zip(kept, kept_on_host, strict=True):
            assert torch.equal(ours.cpu(), theirs)
