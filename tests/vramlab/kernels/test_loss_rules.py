"""Losses, softmax and pooling."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from kernel_events import Events, meta

from vramlab.kernels.reductions import whole_sum

aten = torch.ops.aten
OUT = ("output", 0)
Takes = Callable[..., list[int]]
NONE, MEAN = 0, 1


def test_mean_squared_error_makes_the_error_of_each_element(events: Events) -> None:
    each_bytes = 4 * 64 * 10
    whole = ("output", (0, each_bytes))  # the one number has the memory of all
    assert events(aten.mse_loss.default, meta(64, 10), meta(64, 10), MEAN) == [
        whole,
        ("take", each_bytes),
        ("give", each_bytes),
    ]
    assert events(aten.mse_loss.default, meta(64, 10), meta(64, 10), NONE) == [whole]
    assert events(aten.smooth_l1_loss.default, meta(64, 10), meta(64, 1), MEAN)[1] == ("take", 2560)


def test_large_losses_are_summed_by_many_blocks(takes: Takes) -> None:
    prediction = meta(2**22)
    assert takes(aten.mse_loss.default, prediction, prediction) == [2**24, 4 * 320, 4]


def test_huber_loss_allocates_its_result_last(events: Events) -> None:
    assert events(aten.huber_loss.default, meta(100), meta(100)) == [
        ("take", 400),
        OUT,
        ("give", 400),
    ]
    assert events(aten.huber_loss.default, meta(100), meta(100), NONE) == [OUT]


def test_binary_cross_entropy_returns_one_number_in_a_large_storage(events: Events) -> None:
    probability = meta(1000)
    assert events(aten.binary_cross_entropy.default, probability, probability) == [
        ("output", (0, 4000)),
        ("take", 4),
        ("give", 4),
    ]


def test_binary_cross_entropy_with_logits(takes: Takes, events: Events) -> None:
    logits = meta(1000)
    op = aten.binary_cross_entropy_with_logits.default
    assert takes(op, logits, logits) == [4000, 4000]
    assert takes(op, logits, logits, None, meta(1)) == [4000, 4, 4000, 4000]
    assert events(op, logits, logits, None, None, NONE) == [("take", 4000), OUT, ("give", 4000)]


def test_the_buffer_of_log_sigmoid_is_empty(events: Events) -> None:
    assert events(aten.log_sigmoid_forward.default, meta(10)) == [("output", (1, 0)), OUT]


def test_softmax_wants_its_operands_contiguous(takes: Takes) -> None:
    logits, scattered = meta(8, 100), meta(100, 8).t()
    assert takes(aten._softmax.default, logits, 1, False) == []
    assert takes(aten._log_softmax.default, scattered, 1, False) == [3200]
    backward = aten._log_softmax_backward_data.default
    assert takes(backward, scattered, logits, 1, torch.float32) == [3200]
    assert takes(backward, scattered, scattered, 1, torch.float32) == [3200, 3200]


def test_negative_log_likelihood_takes_nothing_of_contiguous_targets(events: Events) -> None:
    targets = meta(8, dtype=torch.int64)
    forward = aten.nll_loss_forward.default
    assert events(forward, meta(8, 10), targets, None, MEAN, -100) == [OUT, ("output", 1)]
    scattered = meta(16, dtype=torch.int64)[::2]
    assert ("take", 64) in events(forward, meta(8, 10), scattered, None, MEAN, -100)
    backward = aten.nll_loss_backward.default
    arguments = (meta(), meta(8, 10), scattered, None, MEAN, -100, meta())
    assert events(backward, *arguments) == [OUT, ("take", 64), ("give", 64)]


def test_sum_of_nothing_takes_nothing() -> None:
    assert whole_sum(None, 0, torch.float32) == ()  # type: ignore[arg-type]


def test_pooling_copies_an_input_in_neither_memory_format(takes: Takes) -> None:
    image = meta(2, 3, 8, 8)
    pool = aten.max_pool2d_with_indices.default
    assert takes(pool, image, [2, 2], [2, 2]) == []
    assert takes(pool, image.to(memory_format=torch.channels_last), [2, 2], [2, 2]) == []
    assert takes(pool, meta(2, 3, 8, 16)[:, :, :, ::2], [2, 2], [2, 2]) == [2 * 3 * 64 * 4]


def test_pooling_backward_brings_the_gradient_into_the_inputs_format(takes: Takes) -> None:
    image, gradient = meta(2, 3, 8, 8), meta(2, 3, 4, 4)
    backward = aten.avg_pool2d_backward.default
    pooled = ([2, 2], [2, 2], [0, 0], False, True, None)
    assert takes(backward, gradient, image, *pooled) == []
    channels_last = image.to(memory_format=torch.channels_last)
    assert takes(backward, gradient, channels_last, *pooled) == [2 * 3 * 16 * 4]


def test_adaptive_pooling_copies_before_its_output(events: Events) -> None:
    scattered = meta(2, 3, 8, 16)[:, :, :, ::2]
    size = 2 * 3 * 64 * 4
    pool = aten._adaptive_avg_pool2d.default
    assert events(pool, scattered, [2, 2]) == [("take", size), OUT, ("give", size)]
    backward = aten._adaptive_avg_pool2d_backward.default
    assert takes_of(events(backward, meta(2, 3, 2, 2), meta(2, 3, 8, 8))) == []
    scattered_gradient = meta(2, 3, 2, 4)[:, :, :, ::2]
    assert takes_of(events(backward, scattered_gradient, meta(2, 3, 8, 8))) == [2 * 3 * 4 * 4]


def takes_of(happened: list[tuple[str, int]]) -> list[int]:
    return [size for kind, size in happened if kind == "take"]


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
