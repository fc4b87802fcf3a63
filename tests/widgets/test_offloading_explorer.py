"""The offloading explorer: measured bytes, least times, and what follows."""

from __future__ import annotations

import pytest
import torch

from vramlab import VirtualGPU
from vramlab.units import MIB
from vramlab.widgets import offloading_explorer
from vramlab.widgets.explorer import Explorer
from vramlab.widgets.offloading_explorer import show_offloading

SMALL = {"width": 256, "layers": 1, "batch": 1, "length": 64}
PARAMETERS = 12 * 256**2 + 13 * 256  # 789,760


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return offloading_explorer(**SMALL, offloaded=())


def test_nothing_travels_until_something_is_chosen(explorer: Explorer) -> None:
    assert "Nothing travels." in explorer.output.value
    assert f"{PARAMETERS:,} parameters, 64 tokens in a step" in explorer.output.value
    explorer.controls["optimizer"].value = True
    # 2 B x 789,760 over 15.75 GB/s are 100 us; 6 x 789,760 x 64 FLOPs at 65 TFLOP/s are 5 us
    assert "It waits for its way to the host: 100 µs at least" in explorer.output.value
    assert f"{2 * PARAMETERS:,} B" in explorer.output.value


def test_enough_tokens_hide_the_trip() -> None:
    # 1376 tokens are needed on a T4, less a little for the attention's own products
    few = show_offloading("T4", 256, 1, 16, 64, optimizer=True)
    many = show_offloading("T4", 256, 1, 32, 64, optimizer=True)
    assert "It waits for its way" in few.summary
    assert "can hide" in many.summary


def test_what_does_not_fit_is_measured_too() -> None:
    # 12 x 8192^2 x 16 B = 12 GiB for a layer: 3 of them are more than a T4 has
    view = show_offloading("T4", 8192, 3, 1, 64)
    assert "does not fit a T4 of 14.74 GiB" in view.summary
    assert "fits a T4" in show_offloading("T4", 8192, 3, 1, 64, optimizer=True).summary


def test_an_attached_gpu_is_not_disturbed(explorer: Explorer) -> None:
    with VirtualGPU("T4"):
        kept = torch.empty(6 * MIB, dtype=torch.uint8, device="cuda")
        before = torch.cuda.memory_stats()
        explorer.controls["activations"].value = True
        assert torch.cuda.memory_stats() == before
        assert kept.is_cuda
    assert 'role="alert"' not in explorer.output.value
