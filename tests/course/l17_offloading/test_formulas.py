"""Offloading in closed form: bytes that move, bytes that stay, and when the trips are hidden."""

from __future__ import annotations

from typing import get_args

import pytest
import torch

from vramlab import VirtualGPU, catalogue
from vramlab.measure import record_transfers
from vramlab_course.lessons.l17_offloading import formulas as offloading
from vramlab_course.lessons.l17_offloading.experiment import relu_chain, saving

T4, A100 = catalogue.find("T4"), catalogue.find("A100-40GB")


@pytest.mark.parametrize("way", get_args(offloading.Saving))
@pytest.mark.parametrize("layers", [1, 3])
def test_a_chain_moves_that_in_each_direction(way: offloading.Saving, layers: int) -> None:
    with VirtualGPU("T4"):
        model = relu_chain(layers, 64).to("cuda")
        x = torch.zeros(256, 64, device="cuda")
        with record_transfers() as moved:
            with saving(way, list(model.parameters())):
                loss = model(x).square().mean()
            loss.backward()
    rows_bytes, weight_bytes = 256 * 64 * 4, 64 * 64 * 4
    expected = {
        "on the GPU": 0,
        "each once": (1 + layers) * rows_bytes,  # the input, each ReLU's output
        # the input, each ReLU's output twice, every weight but the first
        "save_on_cpu": (1 + 2 * layers) * rows_bytes + (layers - 1) * weight_bytes,
    }[way]
    assert (moved.to_host_bytes, moved.to_gpu_bytes) == (expected, expected)


def test_a_peak_that_weights_could_decide_is_refused() -> None:
    # 4 weights of 64 x 64 x 4 B = 65536 B, a row of 64 x 4 = 256 B
    said = "4 weights of 16384 B are more than an activation of 65280 B: take a larger batch"
    with pytest.raises(ValueError, match=said):
        offloading.backward_peak_bytes("save_on_cpu", 4, 255, 64)
    # the loss, its gradient, and 5 x 256 x 64 x 4 B
    assert offloading.backward_peak_bytes("save_on_cpu", 4, 256, 64) == 1024 + 5 * 65536
    assert offloading.backward_peak_bytes("on the GPU", 4, 256, 64) == 1024 + 8 * 65536


def test_bytes_held_for_each_parameter() -> None:
    assert offloading.HELD_PER_PARAMETER["all on the GPU"] == 2 + 2 + 4 + 8


@pytest.mark.parametrize(
    ("size_bytes", "taken_bytes"),
    [(0, 0), (1, 1), (512, 512), (513, 1024), (2**30, 2**30), (2**30 + 1, 2**31)],
)
def test_pinned_memory_comes_in_powers_of_two(size_bytes: int, taken_bytes: int) -> None:
    assert offloading.pinned_bytes(size_bytes) == taken_bytes


def test_tokens_that_hide_a_trip_do_not_depend_on_the_model() -> None:
    # 2 B / 15.753846153e9 B/s, against 6 FLOPs / 65e12 FLOP/s for each token
    assert offloading.tokens_to_hide(T4, "float16", 2) == pytest.approx(1375.3, abs=0.1)
    # At exactly so many tokens, the link and the products of any model take as long.
    tokens, parameters = offloading.tokens_to_hide(A100, "bfloat16", 2), 7_000_000_000
    link_s = 2 * parameters / A100.pcie_bandwidth_bytes_per_s
    assert 6 * parameters * tokens / 312e12 == pytest.approx(link_s)


def test_width_that_hides_an_activation_does_not_depend_on_the_batch() -> None:
    width, rows = offloading.width_to_hide(T4, "float16", 2), 1000
    link_s = 2 * rows * width / T4.pcie_bandwidth_bytes_per_s
    assert 2 * rows * width * width / 65e12 == pytest.approx(link_s)
    # float32 outside tensor cores is slower, and its bytes twice as many: 4 x 8.1 / (2 x 65)
    ratio = offloading.width_to_hide(T4, "float32", 4) / width
    assert ratio == pytest.approx(2 * 8.1 / 65)
