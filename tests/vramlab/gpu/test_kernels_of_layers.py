"""Layers whose ops call others on CUDA, or cuDNN: what they allocate, forward and backward.

The sizes are what PyTorch 2.13's CUDA build allocated on the native engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import vramlab
from vramlab.measure import record_timeline
from vramlab.measure.history.recording import Recording


@pytest.fixture(autouse=True)
def gpu() -> Iterator[None]:
    with vramlab.VirtualGPU("A100-40GB", torch_version="2.13"):
        weight = torch.ones(64, 64, device="cuda", requires_grad=True)
        (weight @ weight).sum().backward()  # the first product takes cuBLAS's workspace
        yield


def sizes(recording: Recording) -> list[int]:
    """Return what was requested while a timeline was recorded."""
    made = [block for block in recording.timeline.blocks if block.born >= 0]
    return [block.requested_bytes for block in sorted(made, key=lambda block: block.born)]


def allocated(run: Callable[[], torch.Tensor], *, is_expanded: bool = False) -> list[list[int]]:
    """Return the sizes that were requested, forward and backward."""
    with record_timeline() as forward:
        y = run()
    gradient = torch.ones((), device="cuda").expand_as(y) if is_expanded else torch.ones_like(y)
    with record_timeline() as backward:
        y.backward(gradient)
    return [sizes(forward), sizes(backward)]


def zeros(*shape: int, **options: Any) -> torch.Tensor:
    return torch.zeros(*shape, device="cuda", **options)


def test_a_bilinear_layer_multiplies_feature_by_feature() -> None:
    """8 rows of 6 and of 7 features, 5 results: for each of 5, 8 x 7 products and 8 sums."""
    layer = nn.Bilinear(6, 7, 5).cuda()
    output, slices, sums = 8 * 5 * 4, 8 * 7 * 4, 8 * 4
    first, second = zeros(8, 6), zeros(8, 7)
    with record_timeline() as recording:
        layer(first, second)
    assert sizes(recording) == [output, *[slices, sums] * 5, output]


@pytest.mark.parametrize(("align_corners", "copies"), [(True, 1), (False, 3)])
def test_an_affine_grid_is_a_product(align_corners: bool, copies: int) -> None:
    """2 x 8 x 10 places of three numbers; a row and a column of numbers, scaled in two steps."""
    theta = zeros(2, 2, 3, requires_grad=True)
    base, grid = 2 * 8 * 10 * 3 * 4, 2 * 8 * 10 * 2 * 4
    lines = [10 * 4] * copies + [8 * 4] * copies
    gradient = 2 * 2 * 3 * 4

    def run() -> torch.Tensor:
        return functional.affine_grid(theta, [2, 3, 8, 10], align_corners=align_corners)

    assert allocated(run) == [[base, *lines, grid], [base, *lines, gradient, gradient]]


def test_cudnn_samples_where_corners_are_aligned() -> None:
    """It copies an expanded gradient, and makes that of the image, wanted or not.

    2 x 3 x 8 x 10 numbers; a grid of 2 x 5 x 4 places, each of two numbers.
    """
    image, grid = zeros(2, 3, 8, 10), zeros(2, 5, 4, 2, requires_grad=True)
    sampled, places, images = 2 * 3 * 5 * 4 * 4, 2 * 5 * 4 * 2 * 4, 2 * 3 * 8 * 10 * 4

    def run(align_corners: bool) -> torch.Tensor:
        return functional.grid_sample(image, grid, align_corners=align_corners)

    aligned = allocated(lambda: run(True), is_expanded=True)
    assert aligned == [[sampled], [sampled, images, places]]
    assert allocated(lambda: run(False), is_expanded=True) == [[sampled], [places]]


def test_soft_margin_loss_backward_has_temporaries_of_each_element() -> None:
    """The target negated, times the input, its exponential; then the gradient."""
    scores, targets = zeros(8, 5, requires_grad=True), zeros(8, 5)
    _, backward = allocated(lambda: functional.soft_margin_loss(scores, targets))
    assert backward == [8 * 5 * 4] * 4


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_gradients_of_bags_are_sorted(mode: str) -> None:
    """40 indices of a table of 50 rows of 16; 44 partial sums at most: 40 // 10 + 40."""
    layer = nn.EmbeddingBag(50, 16, mode=mode).cuda()
    indices, offsets = torch.arange(40, device="cuda"), torch.arange(0, 40, 10, device="cuda")
    _, backward = allocated(lambda: layer(indices, offsets), is_expanded=True)
    each = 40 * 8
    storages = 1, 1279, 1279  # of a sort, a selection and a scan
    assert backward == [
        4 * 16 * 4,  # a copy of the gradient
        each,
        each,
        each,
        storages[0],
        50 * 16 * 4,
        each,
        8,
        each,
        storages[1],
        each,
        each,
        storages[2],
        8,
        44 * 8,
        44 * 16 * 4,
    ]


def test_moments_of_an_empty_batch_are_float32() -> None:
    layer = nn.BatchNorm2d(5).cuda()
    with record_timeline() as recording:
        layer(zeros(0, 5, 4, 4))
    assert sizes(recording) == [5 * 4, 5 * 4]
