"""What the portable engine cannot run, and the native one can."""

from __future__ import annotations

import pytest
import torch

import vramlab
from vramlab.report.native_hint import native_hint


class FourBits(torch.nn.Parameter):
    """As bitsandbytes' `Params4bit`: it changes its bytes itself when it is moved."""

    def cuda(self, device: object = None) -> FourBits:
        self.data = torch.empty(self.numel() // 2, dtype=torch.uint8, device="cuda")
        return self


def test_parameters_that_change_themselves_are_for_the_native_engine() -> None:
    layer = torch.nn.Linear(8, 8, bias=False)
    layer.weight = FourBits(layer.weight.data, requires_grad=False)
    with vramlab.VirtualGPU("T4"), pytest.raises(RuntimeError) as caught:
        layer.cuda()
    assert "--engine native" in (native_hint(caught.value) or "")


def test_triton_comes_with_the_native_engine() -> None:
    missing = ModuleNotFoundError("No module named 'triton'", name="triton")
    assert "`vramlab native setup --triton`" in (native_hint(missing) or "")


def test_other_errors_have_no_hint() -> None:
    assert native_hint(RuntimeError("mat1 and mat2 shapes cannot be multiplied")) is None
    assert native_hint(ModuleNotFoundError("No module named 'wandb'", name="wandb")) is None
    assert native_hint(None) is None
