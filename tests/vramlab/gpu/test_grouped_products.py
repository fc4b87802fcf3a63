"""Mixtures of experts in one op, in the dtypes that CUDA has it in."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import grouped_mm

from vramlab.gpu import VirtualGPU


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_rows_of_experts(gpu: VirtualGPU, dtype: torch.dtype) -> None:
    rows = torch.randn(64, 32, device="cuda", dtype=dtype, requires_grad=True)
    experts = torch.randn(4, 32, 16, device="cuda", dtype=dtype, requires_grad=True)
    offsets = torch.tensor([10, 20, 40, 64], dtype=torch.int32, device="cuda")
    out = grouped_mm(rows, experts, offs=offsets)
    assert (out.shape, out.dtype) == ((64, 16), dtype)
    with pytest.raises(RuntimeError, match=r"Invalid strides/sizes, got \[0, 0\] for strides"):
        out.sum().backward(retain_graph=True)  # its gradient is one number, expanded
    out.square().sum().backward()
    assert rows.grad is not None
    assert rows.grad.shape == rows.shape
    assert experts.grad is not None
    assert experts.grad.shape == experts.shape
    assert "aten._grouped_mm.default" not in gpu.unreviewed()


def test_rows_of_the_result_begin_at_multiples_of_16_bytes(gpu: VirtualGPU) -> None:
    # 3 columns of 4 B take 16 B, so that 512 rows take 8 KiB rather than 6
    left = torch.randn(512, 4, device="cuda")
    right = torch.randn(1, 3, 4, device="cuda").transpose(1, 2)
    offsets = torch.tensor([512], dtype=torch.int32, device="cuda")
    out = grouped_mm(left, right, offs=offsets)
    assert out.stride() == (4, 1)
    assert out.untyped_storage().nbytes() == 512 * 16 - 4  # the last row ends with its last column


def test_what_cuda_refuses(gpu: VirtualGPU) -> None:
    doubles = torch.randn(2, 4, 4, device="cuda", dtype=torch.float64)
    with pytest.raises(RuntimeError, match="Expected mat_a to be Float32, BFloat16 or Float16"):
        grouped_mm(doubles, doubles)
    with pytest.raises(RuntimeError, match="contraction dimension of mat_a and mat_b must match"):
        grouped_mm(torch.randn(2, 4, 4, device="cuda"), torch.randn(2, 8, 4, device="cuda"))
    halves = torch.randn(2, 16, 16, device="cuda").half()
    with pytest.raises(RuntimeError, match="mat_a and mat_b to have the same dtype"):
        grouped_mm(halves, halves.bfloat16())
    with pytest.raises(RuntimeError, match="strides should be multiple of 16 bytes"):
        grouped_mm(halves, halves[..., :12].contiguous())  # rows of 24 B
    with pytest.raises(RuntimeError, match="Invalid strides/sizes"):
        grouped_mm(halves, torch.randn(2, 16, 32, device="cuda").half()[..., ::2])
