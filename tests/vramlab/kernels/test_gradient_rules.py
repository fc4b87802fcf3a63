"""Norms of many gradients at once, dropout's order, and convolutions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from kernel_events import Events, meta

aten = torch.ops.aten
Takes = Callable[..., list[int]]


def _without_cudnn(found: list[Any]) -> list[Any]:
    """Leave out where cuDNN is asked for its plan."""
    return [event for event in found if event[0] != "convolve"]


def test_since_2_15_each_tensor_has_norms_of_its_own_chunks(takes: Takes) -> None:
    """Chunks of 65536 numbers: 10, 1 and 2; where those of each begin, and the end, as int64."""
    tensors = [meta(655_360), meta(5), meta(65_537)]
    found = takes(aten._foreach_norm.Scalar, tensors, version=(2, 15))
    assert found == [8 * (3 + 1), 4 * (10 + 1 + 2)]


def test_partial_norms_are_float32_unless_float64(takes: Takes) -> None:
    assert takes(aten._foreach_norm.Scalar, [meta(10, dtype=torch.bfloat16)]) == [4]
    assert takes(aten._foreach_norm.Scalar, [meta(10, dtype=torch.float64)]) == [8]


def test_a_transposed_gradient_is_read_at_once_but_not_one_with_holes(takes: Takes) -> None:
    assert takes(aten._foreach_norm.Scalar, [meta(8, 4).t()]) == [4]
    assert takes(aten._foreach_norm.Scalar, [meta(8, 4)[:, ::2]]) == []


def test_other_norms_are_taken_one_by_one(events: Events) -> None:
    tensors = [meta(2**22), meta(10)]
    assert events(aten._foreach_norm.Scalar, tensors, 3) == [
        ("output", 0),
        ("take", 4 * 320),
        ("take", 4),
        ("give", 4),
        ("give", 4 * 320),
        ("output", 1),
    ]


CONVOLUTION = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)


def test_convolution_takes_its_output_beside_what_cudnn_decides(events: Events) -> None:
    image, weight = meta(8, 3, 32, 32), meta(16, 3, 3, 3)
    forward = aten.convolution.default
    assert _without_cudnn(events(forward, image, weight, meta(16), *CONVOLUTION)) == [("output", 0)]


def test_memory_formats_are_made_one(events: Events) -> None:
    image = meta(8, 3, 32, 32).to(memory_format=torch.channels_last)
    weight = meta(16, 3, 3, 3)
    weight_bytes = 16 * 3 * 9 * 4
    found = events(aten.convolution.default, image, weight, None, *CONVOLUTION)
    assert _without_cudnn(found) == [
        ("output", 0),
        ("take", weight_bytes),
        ("give", weight_bytes),
    ]


def test_the_gradient_of_a_convolutions_bias_is_a_sum(events: Events) -> None:
    """(64, 16, 64, 64) over all but channels: 2**18 numbers to each of 16 outputs.

    Two dimensions are reduced; the fastest has 4096 numbers: 512 threads across, so 512 numbers to
    a thread; 16 blocks, so 320 / 16 = 20 to a channel, fewer than 512 / 16 = 32.
    """
    gradient, image = meta(64, 16, 64, 64), meta(64, 3, 64, 64)
    arguments = (gradient, image, meta(16, 3, 3, 3), [16], *CONVOLUTION, [True, True, True])
    staging, semaphores = 4 * 16 * 20, 4 * 16
    assert _without_cudnn(events(aten.convolution_backward.default, *arguments)) == [
        ("output", 0),
        ("output", 1),
        ("output", 2),
        ("take", staging),
        ("take", semaphores),
        ("give", semaphores),
        ("give", staging),
    ]


def test_a_gradient_in_another_format_is_copied(takes: Takes) -> None:
    gradient = meta(2, 4, 8, 8).to(memory_format=torch.channels_last)
    arguments = (gradient, meta(2, 3, 8, 8), meta(4, 3, 3, 3), None, *CONVOLUTION)
    sizes = takes(aten.convolution_backward.default, *arguments, [False, True, False])
    assert sizes == [2 * 4 * 64 * 4]
