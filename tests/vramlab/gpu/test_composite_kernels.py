"""Ops that have both a kernel and a way to take them apart run as CUDA's autograd runs them."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F  # noqa: N812  the name that everybody uses

from vramlab.gpu import VirtualGPU


@pytest.mark.parametrize("activation", [F.silu, F.gelu, F.softplus, F.hardswish, F.mish, F.elu])
def test_gradients_of_activations_are_on_the_gpu(activation: object, gpu: VirtualGPU) -> None:
    x = torch.randn(1000, device="cuda", requires_grad=True)
    before = torch.cuda.memory_allocated()
    assert callable(activation)
    activation(x).backward(torch.ones(1000, device="cuda"))
    assert x.grad is not None
    assert x.grad.device == torch.device("cuda:0")
    # The gradient is what is left: 4,000 B, rounded up to a multiple of 512.
    assert torch.cuda.memory_allocated() - before == 4096
