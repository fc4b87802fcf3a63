"""Batch normalization: cuDNN's where CUDA takes it, and gradients as its kernels lay them out.

The sizes are what PyTorch 2.13's CUDA build allocated on the native engine.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import nn
from torch.nn import functional

import vramlab
from vramlab.measure import record_timeline
from vramlab.measure.history.recording import Recording

IMAGES = 8 * 64 * 14 * 14 * 4
"""Bytes of a batch in float32."""
CHANNELS = 64 * 4


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with vramlab.VirtualGPU("A100-40GB"):
        yield


def allocated(layer: nn.Module, x: torch.Tensor, *, is_expanded: bool) -> list[list[int]]:
    """Return the sizes that were requested, forward and backward."""
    with record_timeline() as forward:
        y = layer(x)
    one = torch.ones((), device="cuda", dtype=y.dtype)
    gradient = one.expand_as(y) if is_expanded else torch.ones_like(y)
    with record_timeline() as backward:
        y.backward(gradient)
    return [sizes(forward), sizes(backward)]


def sizes(recording: Recording) -> list[int]:
    """Return what was requested while a timeline was recorded."""
    made = [block for block in recording.timeline.blocks if block.born >= 0]
    return [block.requested_bytes for block in sorted(made, key=lambda block: block.born)]


@pytest.mark.parametrize(
    ("training", "is_expanded", "channels_last", "expected"),
    [
        (True, False, False, [[IMAGES, CHANNELS, CHANNELS], [IMAGES, CHANNELS, CHANNELS]]),
        # cuDNN reads a copy of an expanded gradient
        (True, True, False, [[IMAGES, CHANNELS, CHANNELS], [IMAGES, IMAGES, CHANNELS, CHANNELS]]),
        # It saves no moments in evaluation, and its backward pass is PyTorch's: one kernel,
        (False, True, False, [[IMAGES], [IMAGES, CHANNELS, CHANNELS]]),
        # or, of channels last, deviations, sums, gradients of weight and bias, and one of the input
        # that is contiguous, which is laid out as the input is.
        (False, False, True, [[IMAGES], [*[CHANNELS] * 5, IMAGES, IMAGES]]),
    ],
)
def test_images(
    training: bool, is_expanded: bool, channels_last: bool, expected: list[list[int]]
) -> None:
    layer = nn.BatchNorm2d(64).cuda().train(training)
    x = torch.zeros(8, 64, 14, 14, device="cuda")
    if channels_last:
        x = x.to(memory_format=torch.channels_last)
    assert allocated(layer, x.requires_grad_(), is_expanded=is_expanded) == expected


def test_rows() -> None:
    """PyTorch's own kernels: sums of 96 channels, gradients of weight and bias, of 64 rows."""
    layer = nn.BatchNorm1d(96).cuda()
    x = torch.zeros(64, 96, device="cuda", requires_grad=True)
    rows, channels = 64 * 96 * 4, 96 * 4
    expected = [[rows, channels, channels], [*[channels] * 4, rows]]
    assert allocated(layer, x, is_expanded=True) == expected


def test_cudnn_reads_a_copy_of_an_image_that_is_neither_contiguous_nor_channels_last() -> None:
    layer = nn.BatchNorm2d(64).cuda()
    x = torch.zeros(8, 64, 14, 14, device="cuda").transpose(2, 3).requires_grad_()
    forward, _ = allocated(layer, x, is_expanded=False)
    assert forward == [IMAGES, IMAGES, CHANNELS, CHANNELS]


def test_no_gradient_of_an_input_that_needs_none() -> None:
    """Of bfloat16 it is PyTorch's own: the gradients of weight and bias, of 2 bytes each."""
    layer = nn.BatchNorm2d(64).cuda().bfloat16()
    x = torch.zeros(8, 64, 14, 14, device="cuda", dtype=torch.bfloat16)
    _, backward = allocated(layer, x, is_expanded=True)
    assert backward == [CHANNELS // 2, CHANNELS // 2]


def test_all_dropped_is_times_zero() -> None:
    x = torch.zeros(100, device="cuda")
    with record_timeline() as recording:
        functional.dropout(x, 1.0)
    assert sizes(recording) == [4, 400]
