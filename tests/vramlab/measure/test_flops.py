"""FLOPs of attention, with and without shared heads."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vramlab import VirtualGPU
from vramlab.measure.flops import count_flops

BATCH, HEADS, LENGTH, SIZE = 2, 8, 64, 32


def attend(key_heads: int) -> None:
    query = torch.zeros(
        BATCH, HEADS, LENGTH, SIZE, dtype=torch.bfloat16, device="cuda", requires_grad=True
    )
    other = torch.zeros(
        BATCH, key_heads, LENGTH, SIZE, dtype=torch.bfloat16, device="cuda", requires_grad=True
    )
    out = torch.nn.functional.scaled_dot_product_attention(query, other, other, enable_gqa=True)
    out.sum().backward()


@pytest.mark.parametrize("key_heads", [HEADS, 2])
def test_two_products_forward_and_five_backward(key_heads: int) -> None:
    with VirtualGPU("A100-40GB"), count_flops() as counter:
        attend(key_heads)
    product = 2 * BATCH * HEADS * LENGTH * LENGTH * SIZE
    # Forward the scores and the sum of values; backward the scores again, and four gradients.
    assert counter.get_total_flops() == (2 + 5) * product


def test_it_counts_as_torch_does() -> None:
    with VirtualGPU("A100-40GB"):
        with count_flops() as ours:
            attend(HEADS)
        with FlopCounterMode(display=False) as theirs:
            attend(HEADS)
    assert ours.get_total_flops() == theirs.get_total_flops()
