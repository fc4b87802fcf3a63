"""Attention with values: what the virtual GPU computes is what PyTorch computes on the host."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from vramlab import VirtualGPU


@pytest.mark.parametrize("gpu", ["T4", "A100-40GB"])
@pytest.mark.parametrize("mask", ["none", "causal", "boolean", "additive"])
def test_masks_leave_out_what_they_do_on_the_host(gpu: str, mask: str) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 8, 4) for _ in range(3))
    keep = torch.ones(8, 8, dtype=torch.bool).tril(diagonal=2)
    added = torch.randn(8, 8)
    options = {
        "none": {},
        "causal": {"is_causal": True},
        "boolean": {"attn_mask": keep},
        "additive": {"attn_mask": added},
    }[mask]
    expected = scaled_dot_product_attention(query, key, value, **options)
    with VirtualGPU(gpu, values=True):
        on_gpu = {
            name: option.cuda() if isinstance(option, torch.Tensor) else option
            for name, option in options.items()
        }
        result = scaled_dot_product_attention(query.cuda(), key.cuda(), value.cuda(), **on_gpu)
        assert torch.allclose(result.cpu(), expected, atol=1e-6)
