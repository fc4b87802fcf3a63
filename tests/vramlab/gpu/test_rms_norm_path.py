"""RMSNorm is one op on CUDA, for autograd too."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

import vramlab


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rms_norm_keeps_its_input_and_a_scale_of_each_row(dtype: torch.dtype) -> None:
    with vramlab.VirtualGPU("A100-40GB"):
        x = torch.zeros(4, 256, 512, device="cuda", dtype=dtype, requires_grad=True)
        norm = torch.nn.RMSNorm(512, device="cuda", dtype=dtype)
        before_bytes = torch.cuda.memory_allocated()
        y = norm(x)
        # The result, and 1024 rows of a float32. The input is kept, but was there before.
        output_bytes = y.numel() * y.element_size()
        assert torch.cuda.memory_allocated() - before_bytes == output_bytes + 4 * 1024
        y.sum().backward()
        assert x.grad is not None
        assert norm.weight.grad is not None
        assert (x.grad.shape, x.grad.dtype) == (x.shape, dtype)
        assert norm.weight.grad.dtype == dtype
        del x, y, norm


def test_rms_norm_without_a_weight_or_over_two_dimensions() -> None:
    with vramlab.VirtualGPU("A100-40GB"):
        x = torch.zeros(8, 16, 32, device="cuda", requires_grad=True)
        y = functional.rms_norm(x, (16, 32))
        assert y.shape == x.shape
        y.sum().backward()
        del x, y
