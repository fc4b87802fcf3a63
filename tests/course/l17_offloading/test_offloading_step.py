"""A whole step with parts on the host: what travels is what the formulas say."""

from __future__ import annotations

import pytest

from vramlab import VirtualGPU
from vramlab_course.lessons.l17_offloading.experiment import PreNormBlock, StepReading, read_step

WIDTH, LAYERS, BATCH, LENGTH = 256, 3, 2, 128


def step(**parts: bool) -> StepReading:
    with VirtualGPU("T4"):
        return read_step(WIDTH, LAYERS, BATCH, LENGTH, **parts)


def test_a_block_has_twelve_squares_of_its_width() -> None:
    parameters = sum(p.numel() for p in PreNormBlock(WIDTH, 4).parameters())
    # weights 3 + 1 + 4 + 4; biases 3 + 1 + 4 + 1 and two norms of two: 13
    assert parameters == 12 * WIDTH**2 + 13 * WIDTH


def test_the_optimizer_costs_two_bytes_each_way() -> None:
    reading = step(optimizer=True)
    expected = 2 * reading.parameters  # float16: gradients there, parameters back
    assert reading.transfers.to_host_bytes == reading.transfers.to_gpu_bytes == expected
    assert reading.transfers.waited_for_bytes == 0  # pinned


def test_streamed_parameters_come_twice_and_gradients_go_once() -> None:
    reading = step(parameters=True)
    moved = (reading.transfers.to_gpu_bytes, reading.transfers.to_host_bytes)
    assert moved == (2 * 2 * reading.parameters, 2 * reading.parameters)  # float16


def test_streaming_computes_a_third_more() -> None:
    # forward 1, backward 2, and forward again; the attention's own products take a little more
    assert step(parameters=True).flops / step().flops == pytest.approx(4 / 3, rel=0.08)
