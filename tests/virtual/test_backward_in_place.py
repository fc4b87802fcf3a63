"""Gradients of selections are scattered into zeros in place, as on CUDA outside dispatch modes."""

from __future__ import annotations

import pytest
import torch

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
