"""A virtual GPU inside of another one leaves autocast to it."""

from __future__ import annotations

import torch

from vramlab import VirtualGPU


def product_dtype() -> torch.dtype:
    a = torch.zeros(8, 8, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return (a @ a).dtype


def test_autocast_works_before_in_and_after_a_virtual_gpu_inside_of_another() -> None:
    with VirtualGPU("T4"):
        assert product_dtype() == torch.bfloat16
        with VirtualGPU("A100-40GB"):
            assert product_dtype() == torch.bfloat16
        assert product_dtype() == torch.bfloat16
    with VirtualGPU("T4"):
        assert product_dtype() == torch.bfloat16
