"""Layer, RMS and group normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_events import A100, Events, meta

from vramlab.kernels.normalization import partial_gradient_rows

aten = torch.ops.aten
Takes = Callable[..., list[int]]


def test_layer_norm_takes_its_outputs(events: Events) -> None:
    weight = meta(768)
    forward = events(
        aten.native_layer_norm.default, meta(32, 512, 768), [768], weight, weight, 1e-5
    )
    assert forward == [("output", 0), ("output", 1), ("output", 2)]


def test_layer_norm_wants_its_input_contiguous(events: Events) -> None:
    input = meta(768, 64).t()
    assert events(aten.native_layer_norm.default, input, [768], None, None, 1e-5) == [
        ("take", 64 * 768 * 4),
        ("output", 0),
        ("output", 1),
        ("output", 2),
        ("give", 64 * 768 * 4),
    ]


def backward_of_layer_norm(rows: int, columns: int) -> tuple[object, ...]:
    input, weight, statistics = meta(rows, columns), meta(columns), meta(rows, 1)
    return input, input, [columns], statistics, statistics, weight, weight, [True, True, True]


def test_a_usual_batch_is_summed_by_blocks_of_their_own(events: Events) -> None:
    arguments = backward_of_layer_norm(32 * 512, 768)
    assert events(aten.native_layer_norm_backward.default, *arguments) == [
        ("output", 0),
        ("output", 1),
        ("output", 2),
    ]


def test_partial_gradients_are_for_long_batches_of_short_rows() -> None:
    multiprocessors = A100.multiprocessors  # half of 108 is 54 blocks of 32 columns
    assert partial_gradient_rows(65_536, 64, multiprocessors) == 0
    assert partial_gradient_rows(65_537, 54 * 32, multiprocessors) == 0
    # 53 blocks across: 32768 / 53 = 618 blocks down, fewer than 65537 / 32
    assert partial_gradient_rows(65_537, 53 * 32, multiprocessors) == 618
    # 2 blocks across: 100000 / 32 = 3125 blocks down, fewer than 32768 / 2
    assert partial_gradient_rows(100_000, 64, multiprocessors) == 3125


def test_long_batches_leave_partial_gradients_to_be_summed(events: Events) -> None:
    arguments = backward_of_layer_norm(100_000, 64)
    first, parts = 64 * 4, 3125 * 64 * 4
    # The sum of (3125, 64) over its rows: 4 columns a thread, 16 across, 8 deep, 391 rows each, so
    # blocks share: 1728 run at once, but 391 / 16 = 25 to a column is enough.
    staging, semaphores = 4 * 64 * 25 * 16 * 4, 4
    summed = [
        ("take", staging),
        ("take", semaphores),
        ("give", semaphores),
        ("give", staging),
        ("give", first),
    ]
    assert events(aten.native_layer_norm_backward.default, *arguments, gpu=A100) == [
        ("output", 0),
        ("take", first),
        ("take", first),
        ("take", parts),
        ("take", parts),
        ("output", 1),
        *summed,
        ("output", 2),
        *summed,
        ("give", parts),
        ("give", parts),
    ]


def test_rms_norm_both_ways(events: Events) -> None:
    input, weight = meta(64, 128), meta(128)
    forward = events(aten._fused_rms_norm.default, input, [128], weight, 1e-6)
    assert forward == [("output", 0), ("output", 1)]
    backward = aten._fused_rms_norm_backward.default
    arguments = (input, input, [128], meta(64, 1), weight, [True, True])
    assert events(backward, *arguments) == [("output", 0), ("output", 1)]
    scattered = (meta(128, 64).t(), *arguments[1:])
    assert ("take", 64 * 128 * 4) in events(backward, *scattered)


def test_group_norm_keeps_a_scale_and_a_shift_of_each_channel(takes: Takes) -> None:
    arguments = (meta(8, 32, 14, 14, dtype=torch.float16), meta(32), meta(32), 8, 32, 196, 4, 1e-5)
    channels, groups = 8 * 32 * 4, 8 * 4 * 4  # bytes: a float32 for each
    norm = aten.native_group_norm.default
    assert takes(norm, *arguments, version=(2, 11)) == [channels, channels]
    assert takes(norm, *arguments, version=(2, 13)) == [groups, groups, channels, channels]
    without_affine = (arguments[0], None, None, *arguments[3:])
    assert takes(norm, *without_affine, version=(2, 11)) == []
    in_float32 = (meta(8, 32, 14, 14), *arguments[1:])
    assert takes(norm, *in_float32, version=(2, 13)) == [channels, channels]


def test_group_norm_backward(takes: Takes) -> None:
    input, weight = meta(8, 32, 14, 14), meta(32)
    statistics = meta(8, 4)
    arguments = (input, input, statistics, statistics, weight, 8, 32, 196, 4)
    backward = aten.native_group_norm_backward.default
    channels, groups = 8 * 32 * 4, 8 * 4 * 4
    everything = takes(backward, *arguments, [True, True, True])
    assert everything == [channels, channels, groups, groups, channels]
    assert takes(backward, *arguments, [False, True, True]) == [channels, channels]


@pytest.mark.parametrize(
    ("changes", "saves"),
    # As PyTorch 2.11.0 and 2.13.0 do on the native engine.
    [
        ({}, False),
        ({"training": True}, True),
        ({"dtype": torch.float16}, False),
        ({"dtype": torch.float16, "weights": torch.float16}, True),
        ({"dtype": torch.bfloat16}, True),
        ({"dtype": torch.float64, "weights": torch.float64}, False),
        ({"shape": (4, 64)}, True),
        ({"shape": (4, 64, 3)}, False),
        ({"shape": (65536, 64, 1, 1)}, True),
        ({"affine": False}, True),
    ],
)
def test_cudnn_saves_no_moments_in_evaluation(
    events: Events, changes: dict[str, Any], saves: bool
) -> None:
    case = {"shape": (4, 64, 8, 8), "dtype": torch.float32, "weights": torch.float32}
    case |= {"training": False, "affine": True, **changes}
    moments = [meta(64) for _ in range(2)]
    weights = [meta(64, dtype=case["weights"]) if case["affine"] else None for _ in range(2)]
    found = events(
        aten.native_batch_norm.default,
        meta(*case["shape"], dtype=case["dtype"]),
        *weights,
        *moments,
        case["training"],
        0.1,
        1e-5,
    )
    kept = [1, 2] if saves else [(1, 0), (2, 0)]  # of so many bytes
    assert found == [("output", 0), *(("output", each) for each in kept)]
