"""Accumulation and mixed precision elsewhere, and the parts that stand for the year 2023."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from vramlab import VirtualGPU
from vramlab.units import MIB
from vramlab_course import experiments
from vramlab_course.lessons.l13_gradient_accumulation.experiment import (
    TransformersAdamW,
    attention_of_2023,
    published_difference_bytes,
)
from vramlab_course.rules import RULES


@pytest.mark.parametrize("name", ["accumulation-linear", "autocast-chain", "precision-modes"])
@pytest.mark.parametrize(
    ("gpu", "torch_version"), [("H200", "2.13"), ("V100-16GB", "1.13"), ("RTX-4090", "2.10")]
)
def test_predictions_hold_elsewhere(gpu: str, torch_version: str, name: str) -> None:
    with VirtualGPU(gpu, torch_version=torch_version, alloc_conf=""):
        outcome = experiments.run(name)
    for stage in outcome.result.stages:
        for expectation in stage.expectations:
            assert stage.measured_bytes(expectation.quantity) == expectation.predicted_bytes


@pytest.mark.parametrize("steps", [2, 8])
def test_accumulation_in_other_pieces(steps: int) -> None:
    with VirtualGPU("T4", torch_version=RULES):
        outcome = experiments.run("accumulation-linear", batch=4096, steps=steps, widths=(512,) * 4)
    later = outcome[f"micro-batch {steps}"]
    assert later.peak_allocated_bytes > outcome["first micro-batch"].peak_allocated_bytes
    assert later.peak_allocated_bytes == later.expectation("peak").predicted_bytes


def test_the_published_difference() -> None:
    assert published_difference_bytes() == (11539 - 7343) * MIB


def test_attention_of_2023_is_attention() -> None:
    query, key, value = torch.randn(3, 2, 4, 8, 16, generator=torch.Generator().manual_seed(0))
    expected = nn.functional.scaled_dot_product_attention(query, key, value)
    context, weights = attention_of_2023(nn.Identity(), query, key, value, None, scaling=16**-0.5)
    assert weights is None
    # heads come after the length here
    assert torch.allclose(context.transpose(1, 2), expected, atol=1e-6)


def test_transformers_adamw_takes_two_roots_at_most() -> None:
    with VirtualGPU("T4", torch_version=RULES):
        weights = [nn.Parameter(torch.zeros(1024, 1024, device="cuda")) for _ in range(4)]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        optimizer = TransformersAdamW(weights)
        optimizer.step()
        before_bytes = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        optimizer.step()
        # A root of 4 MiB, and that of the weight before, whose name is still in use.
        assert torch.cuda.max_memory_allocated() - before_bytes == 8 * MIB
