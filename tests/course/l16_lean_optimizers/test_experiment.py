"""Optimizers that keep less than AdamW: what they keep."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import vramlab
from vramlab_course.lessons.l16_lean_optimizers.experiment import LEAN_OPTIMIZERS

SHAPES = [(1024, 512), (512,), (4096,), (4095,), (33, 70, 5), (100, 300)]


@pytest.mark.parametrize("name", LEAN_OPTIMIZERS)
def test_every_optimizer_keeps_what_is_predicted(name: str) -> None:
    lean = LEAN_OPTIMIZERS[name]
    shapes = [shape for shape in SHAPES if not lean.matrices_only or len(shape) == 2]
    with vramlab.VirtualGPU("T4", alloc_conf="expandable_segments:True"):
        torch.zeros(8, 8, device="cuda") @ torch.zeros(8, 8, device="cuda")
        weights = [nn.Parameter(torch.zeros(shape, device="cuda")) for shape in shapes]
        for weight in weights:
            weight.grad = torch.zeros_like(weight)
        optimizer = lean.make(weights)
        before_bytes = torch.cuda.memory_allocated()
        optimizer.step()
        kept_bytes = torch.cuda.memory_allocated() - before_bytes
        optimizer.step()
        assert torch.cuda.memory_allocated() - before_bytes == kept_bytes
    assert kept_bytes == sum(map(lean.state_bytes, shapes)) + lean.once_bytes
