"""Layer, RMS, group and batch normalization."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernel_events import A100, Events, meta

from vramlab.kernels.normalization import is_cudnns, partial_gradient_rows

aten = torch.ops.aten
Takes = Callable[..., list[int]]


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


def test_group_norm_backward_of_one_position(takes: Takes) -> None:
    """The gradient has no coefficients of its own."""
    input, statistics = meta(8, 32), meta(8, 4)
    arguments = (input, input, statistics, statistics, meta(32), 8, 32, 1, 4)
    backward = aten.native_group_norm_backward.default
    channels, groups = 8 * 32 * 4, 8 * 4 * 4
    assert takes(backward, *arguments, [True, True, True]) == [channels, channels, groups, groups]
    assert takes(backward, *arguments, [False, True, True]) == [channels, channels]


@pytest.mark.parametrize(
    ("changes", "is_its"),
    # As PyTorch 2.11.0 and 2.13.0 do on the native engine.
    [
        ({}, True),
        ({"training": True}, True),
        ({"dtype": torch.float16}, True),
        ({"dtype": torch.float16, "weights": torch.float16}, False),
        ({"dtype": torch.bfloat16}, False),
        ({"dtype": torch.float64, "weights": torch.float64}, True),
        ({"shape": (4, 64)}, False),
        ({"shape": (4, 64, 3)}, True),
        ({"shape": (65536, 64, 1, 1)}, False),
        ({"shape": (65536, 64, 1, 1), "training": True}, True),
        ({"affine": False}, False),
        ({"statistics": False}, False),
        ({"statistics": False, "training": True}, True),
    ],
)
def test_cudnn_normalizes_some_batches(changes: dict[str, Any], is_its: bool) -> None:
    case = {"shape": (4, 64, 8, 8), "dtype": torch.float32, "weights": torch.float32}
    case |= {"training": False, "affine": True, "statistics": True, **changes}
    moments = [meta(64) if case["statistics"] else None for _ in range(2)]
    weights = [meta(64, dtype=case["weights"]) if case["affine"] else None for _ in range(2)]
    input = meta(*case["shape"], dtype=case["dtype"])
    assert is_cudnns(input, *weights, *moments, training=case["training"]) is is_its


BATCH, IMAGE, VOLUME = (64, 96), (4, 8, 6, 6), (4, 8, 3, 4, 4)
OUTPUTS = [("output", 0), ("output", 1), ("output", 2)]


def last(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    wanted = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return meta(*shape, dtype=dtype).to(memory_format=wanted)


@pytest.mark.parametrize(
    ("input", "affine", "training", "taken"),
    [
        (meta(*BATCH), False, True, []),
        (meta(*IMAGE), False, True, []),
        (last(*IMAGE), False, True, []),
        # in neither format: numbers instead of weight and bias
        (meta(*IMAGE).transpose(2, 3), False, False, [4, 4]),
        (last(*VOLUME), False, True, [4, 4]),
        (last(*VOLUME), True, True, []),
        # var_mean casts bfloat16: 4 x 8 x 3 x 4 x 4 numbers of 4 bytes
        (last(*VOLUME, dtype=torch.bfloat16), True, True, [6144]),
        (last(*VOLUME, dtype=torch.bfloat16), True, False, []),
        (last(*VOLUME, dtype=torch.float16), True, True, []),
        # 32 channels across, 16 down, each 16 of 70,000 rows: 274 blocks, at most 128, with 4
        # numbers of each channel
        (meta(70_000, 32), True, True, [4 * 32 * 128 * 4, 4]),
        # 7 blocks of 256 rows do not share
        (meta(7 * 256, 32), True, True, []),
        (meta(8 * 256, 32), True, True, [4 * 32 * 8 * 4, 4]),
    ],
)
def test_own_kernels_of_batch_norm(
    takes: Takes, input: torch.Tensor, affine: bool, training: bool, taken: list[int]
) -> None:
    weight, statistics = (meta(input.size(1)) if affine else None), meta(input.size(1))
    how = (weight, weight, statistics, statistics, training, 0.1, 1e-5)
    assert takes(aten.native_batch_norm.default, input, *how) == taken
    assert takes(aten._native_batch_norm_legit.default, input, *how) == taken


@pytest.mark.parametrize(
    ("gradient", "input", "affine", "training", "expected"),
    [
        # one kernel
        (meta(*IMAGE), meta(*IMAGE), True, True, OUTPUTS),
        (meta().expand(IMAGE), meta(*IMAGE), True, True, OUTPUTS),
        (
            meta(*IMAGE).transpose(2, 3),
            meta(*IMAGE),
            True,
            True,
            [("take", 4608), *OUTPUTS, ("give", 4608)],
        ),
        # rows of channels: sums of 96 channels, the gradients of weight and bias, that of the input
        (
            meta(*BATCH),
            meta(*BATCH),
            True,
            True,
            [
                ("take", 384),
                ("take", 384),
                ("output", 1),
                ("output", 2),
                ("output", 0),
                ("give", 384),
                ("give", 384),
            ],
        ),
        # no weight; and with an expanded gradient, a number in its place
        (
            meta(*BATCH),
            meta(*BATCH),
            False,
            True,
            [("take", 384), ("take", 384), ("output", 0), ("give", 384), ("give", 384)],
        ),
        (
            meta().expand(BATCH),
            meta(*BATCH),
            False,
            True,
            [
                ("take", 384),
                ("take", 384),
                ("take", 4),
                ("output", 0),
                ("give", 4),
                ("give", 384),
                ("give", 384),
            ],
        ),
        (meta().expand(BATCH), meta(*BATCH), False, False, [("output", 0)]),
    ],
)
def test_own_kernels_of_batch_norm_backward(
    events: Events,
    gradient: torch.Tensor,
    input: torch.Tensor,
    affine: bool,
    training: bool,
    expected: list[tuple[str, int]],
) -> None:
    weight, statistics = (meta(input.size(1)) if affine else None), meta(input.size(1))
    moments = [statistics] * 4
    backward = aten.native_batch_norm_backward.default
    mask = [True, affine, affine]
    arguments = (gradient, input, weight, *moments, training, 1e-5, mask)
    assert events(backward, *arguments) == expected


def test_cudnn_wants_the_gradient_as_the_input_is(takes: Takes) -> None:
    """4 x 8 x 6 x 6 numbers of 4 bytes; the new op gives up its update to PyTorch's own kernels."""
    backward = aten.cudnn_batch_norm_backward.default
    weight, reserve = meta(8), meta(0, dtype=torch.uint8)
    rest = (weight, weight, weight, weight, weight, 1e-5, reserve)
    assert takes(backward, last(*IMAGE), last(*IMAGE), *rest) == []
    assert takes(backward, last(*IMAGE), meta(*IMAGE), *rest) == [4608]
    assert takes(backward, meta(*IMAGE), meta().expand(IMAGE), *rest) == [4608]
    new = aten.batch_norm_backward.default
    for update, taken in ((True, [4608]), (False, [])):
        settings = (update, 1e-5, [True, True, True], reserve)
        expanded = meta().expand(IMAGE)
        assert takes(new, expanded, meta(*IMAGE), *[weight] * 5, *settings) == taken
