"""Losses, softmax and pooling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_events import Events, meta

aten = torch.ops.aten
OUT = ("output", 0)
Takes = Callable[..., list[int]]
NONE, MEAN = 0, 1


def test_large_losses_are_summed_by_many_blocks(takes: Takes) -> None:
    prediction = meta(2**22)
    assert takes(aten.mse_loss.default, prediction, prediction) == [2**24, 4 * 320, 4]


def test_binary_cross_entropy_returns_one_number_in_a_large_storage(events: Events) -> None:
    probability = meta(1000)
    assert events(aten.binary_cross_entropy.default, probability, probability) == [
        ("output", (0, 4000)),
        ("take", 4),
        ("give", 4),
    ]


def test_softmax_wants_its_operands_contiguous(takes: Takes) -> None:
    logits, scattered = meta(8, 100), meta(100, 8).t()
    assert takes(aten._softmax.default, logits, 1, False) == []
    assert takes(aten._log_softmax.default, scattered, 1, False) == [3200]
    backward = aten._log_softmax_backward_data.default
    assert takes(backward, scattered, logits, 1, torch.float32) == [3200]
    assert takes(backward, scattered, scattered, 1, torch.float32) == [3200, 3200]


def test_pooling_backward_brings_the_gradient_into_the_inputs_format(takes: Takes) -> None:
    image, gradient = meta(2, 3, 8, 8), meta(2, 3, 4, 4)
    backward = aten.avg_pool2d_backward.default
    pooled = ([2, 2], [2, 2], [0, 0], False, True, None)
    assert takes(backward, gradient, image, *pooled) == []
    channels_last = image.to(memory_format=torch.channels_last)
    assert takes(backward, gradient, channels_last, *pooled) == [2 * 3 * 16 * 4]


@pytest.mark.parametrize("reduction", [NONE, MEAN])
def test_soft_margin_loss(events: Events, reduction: int) -> None:
    """One number has the memory of all."""
    each_bytes = 4 * 8 * 10
    reduced = [("take", 4), ("give", 4)] if reduction else []
    scores = meta(8, 10)
    assert events(aten.soft_margin_loss.default, scores, scores, reduction) == [
        ("output", (0, each_bytes)),
        *reduced,
    ]


def test_ctc_loss_has_three_lists_of_the_batch(events: Events) -> None:
    """Of 16 samples, as int64; the table of forward variables comes before the loss."""
    lengths = [50] * 16, [20] * 16
    targets = meta(16, 30, dtype=torch.int64)
    taken = [("take", 8 * 16)] * 3
    assert events(aten._ctc_loss.default, meta(50, 16, 20), targets, *lengths) == [
        *taken,
        ("output", 1),
        OUT,
        *[("give", 8 * 16)] * 3,
    ]
