"""Ops that take contiguous copies of operands and outputs: which, and before or after outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from kernel_events import Events, meta

from vramlab.kernels.copies import copies
from vramlab.kernels.rule_table.operands import suggested_format
from vramlab.kernels.rule_table.registry import OUTPUTS, Call

aten = torch.ops.aten
I64 = torch.int64
OUT = ("output", 0)
OUT_1 = ("output", 1)

IMAGE, POOLED = (2, 3, 8, 10), (2, 3, 4, 5)
IMAGE_BYTES, POOLED_BYTES = 2 * 3 * 8 * 10 * 4, 2 * 3 * 4 * 5 * 4
VOLUME, POOLED_VOLUME = (2, 3, 4, 8, 10), (2, 3, 2, 4, 5)
VOLUME_BYTES, POOLED_VOLUME_BYTES = 4 * IMAGE_BYTES, 2 * POOLED_BYTES
WINDOW = [2, 2]
CUBE = [2, 2, 2]


def expanded(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """As the gradient of a sum comes."""
    return meta(dtype=dtype).expand(shape)


def apart(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return meta(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]


def last(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    wanted = torch.channels_last if len(shape) == 4 else torch.channels_last_3d
    return meta(*shape, dtype=dtype).to(memory_format=wanted)


def copied(size_bytes: int, outputs: int = 1) -> list[tuple[str, int]]:
    """One copy after the outputs."""
    return [
        *(("output", index) for index in range(outputs)),
        ("take", size_bytes),
        ("give", size_bytes),
    ]


def before(size_bytes: int) -> list[tuple[str, int]]:
    return [("take", size_bytes), OUT, ("give", size_bytes)]


def indices(*shape: int) -> torch.Tensor:
    return meta(*shape, dtype=I64)


POOL_2D = (WINDOW, WINDOW, [0, 0])
POOL_3D = (CUBE, CUBE, [0, 0, 0])
AVERAGE = (False, True, None)
UP = [16, 20]  # from (8, 10)
UP_BYTES = 4 * IMAGE_BYTES
LARGER = (2, 3, 16, 20)
PADDED = (2, 3, 10, 12)  # one on each side
PADDED_BYTES = 2 * 3 * 10 * 12 * 4


@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        ("avg_pool3d", (apart(*VOLUME), CUBE), copied(VOLUME_BYTES)),
        (
            "avg_pool3d_backward",
            (expanded(*POOLED_VOLUME), meta(*VOLUME), *POOL_3D, *AVERAGE),
            copied(POOLED_VOLUME_BYTES),
        ),
        ("max_pool3d_with_indices", (apart(*VOLUME), CUBE), copied(VOLUME_BYTES, 2)),
        ("max_pool3d_with_indices", (last(*VOLUME), CUBE), [OUT, OUT_1]),
        (
            "max_pool3d_with_indices_backward",
            (
                expanded(*POOLED_VOLUME),
                meta(*VOLUME),
                *POOL_3D,
                [1, 1, 1],
                False,
                indices(*POOLED_VOLUME),
            ),
            copied(POOLED_VOLUME_BYTES),
        ),
        # indices are twice as large as the gradient in float32
        (
            "max_pool2d_with_indices_backward",
            (meta(*POOLED), last(*IMAGE), *POOL_2D, [1, 1], False, indices(*POOLED)),
            [
                OUT,
                ("take", POOLED_BYTES),
                ("take", 2 * POOLED_BYTES),
                ("give", 2 * POOLED_BYTES),
                ("give", POOLED_BYTES),
            ],
        ),
        ("_adaptive_avg_pool2d", (apart(*IMAGE), [4, 5]), before(IMAGE_BYTES)),
        ("_adaptive_avg_pool2d", (apart(*IMAGE[1:]), [4, 5]), [OUT]),  # no batch
        ("_adaptive_avg_pool2d_backward", (meta(*POOLED), last(*IMAGE)), [OUT]),
        ("_adaptive_avg_pool3d", (apart(*VOLUME), [2, 4, 5]), before(VOLUME_BYTES)),
        (
            "_adaptive_avg_pool3d_backward",
            (expanded(*POOLED_VOLUME), meta(*VOLUME)),
            copied(POOLED_VOLUME_BYTES),
        ),
        ("adaptive_max_pool2d", (apart(*IMAGE), [4, 5]), copied(IMAGE_BYTES, 2)),
        (
            "adaptive_max_pool2d",
            (last(*IMAGE), [4, 5]),
            [
                OUT,
                OUT_1,
                ("take", POOLED_BYTES),
                ("take", 2 * POOLED_BYTES),
                ("take", IMAGE_BYTES),
                ("give", IMAGE_BYTES),
                ("give", 2 * POOLED_BYTES),
                ("give", POOLED_BYTES),
            ],
        ),
        (
            "adaptive_max_pool2d_backward",
            (expanded(*POOLED), meta(*IMAGE), indices(*POOLED)),
            copied(POOLED_BYTES),
        ),
        ("adaptive_max_pool3d", (apart(*VOLUME), [2, 4, 5]), copied(VOLUME_BYTES, 2)),
        (
            "adaptive_max_pool3d_backward",
            (expanded(*POOLED_VOLUME), meta(*VOLUME), indices(*POOLED_VOLUME)),
            copied(POOLED_VOLUME_BYTES),
        ),
        (
            "fractional_max_pool2d_backward",
            (expanded(*POOLED), meta(*IMAGE), WINDOW, [4, 5], indices(*POOLED)),
            before(POOLED_BYTES),
        ),
        (
            "max_unpool2d",
            (expanded(*POOLED), indices(*POOLED), [8, 10]),
            before(POOLED_BYTES),
        ),
    ],
)
def test_pooling(events: Events, op: str, arguments: Sequence[Any], expected: Any) -> None:
    assert events(getattr(aten, op).default, *arguments) == expected


@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        ("upsample_nearest1d", (apart(2, 3, 8), [12]), copied(2 * 3 * 8 * 4)),
        ("upsample_nearest1d_backward", (expanded(2, 3, 12), [12], [2, 3, 8]), copied(288)),
        ("upsample_linear1d", (apart(2, 3, 8), [12], False), [OUT]),
        ("upsample_linear1d_backward", (expanded(2, 3, 12), [12], [2, 3, 8], False), copied(288)),
        ("upsample_nearest2d", (apart(*IMAGE), UP), copied(IMAGE_BYTES)),
        ("upsample_nearest2d", (apart(*IMAGE), [8, 10]), [OUT]),  # copied as it is
        ("upsample_nearest2d_backward", (expanded(*LARGER), UP, IMAGE), copied(UP_BYTES)),
        ("_upsample_nearest_exact2d_backward", (expanded(*LARGER), UP, IMAGE), copied(UP_BYTES)),
        ("upsample_bilinear2d", (apart(*IMAGE), UP, False), [OUT]),
        ("upsample_bilinear2d_backward", (expanded(*LARGER), UP, IMAGE, False), copied(UP_BYTES)),
        ("upsample_bicubic2d_backward", (expanded(*LARGER), UP, IMAGE, False), copied(UP_BYTES)),
        ("_upsample_bilinear2d_aa", (apart(*IMAGE), UP, False), copied(IMAGE_BYTES)),
        (
            "_upsample_bilinear2d_aa_backward",
            (expanded(*LARGER), UP, IMAGE, False),
            copied(UP_BYTES),
        ),
        ("upsample_nearest3d", (apart(*VOLUME), [4, 16, 20]), copied(VOLUME_BYTES)),
        (
            "upsample_trilinear3d_backward",
            (expanded(2, 3, 4, 16, 20), [4, 16, 20], VOLUME, False),
            copied(4 * VOLUME_BYTES),
        ),
        ("reflection_pad1d", (apart(2, 3, 10), [1, 1]), copied(240)),
        ("reflection_pad2d", (apart(*IMAGE), [1, 1, 1, 1]), copied(IMAGE_BYTES)),
        (
            "reflection_pad2d_backward",
            (expanded(*PADDED), meta(*IMAGE), [1, 1, 1, 1]),
            copied(PADDED_BYTES),
        ),
        ("replication_pad2d", (apart(*IMAGE), [1, 1, 1, 1]), [OUT]),
        ("replication_pad2d_backward", (expanded(*PADDED), meta(*IMAGE), [1, 1, 1, 1]), [OUT]),
    ],
)
def test_interpolation_and_padding(
    events: Events, op: str, arguments: Sequence[Any], expected: Any
) -> None:
    assert events(getattr(aten, op).default, *arguments) == expected


@pytest.mark.parametrize(
    ("channels", "copies_output"), [(3, True), (4, False)], ids=["3 channels", "4 channels"]
)
def test_few_channels_are_written_contiguously(
    events: Events, channels: int, copies_output: bool
) -> None:
    """In channels last: 2 x 2 outputs of each of 8 x 10 numbers."""
    image = last(2, channels, 8, 10)
    image_bytes = 2 * channels * 80 * 4
    expected = [
        OUT,
        ("take", 4 * image_bytes),
        ("take", image_bytes),
        ("give", image_bytes),
        ("give", 4 * image_bytes),
    ]
    found = events(aten.upsample_nearest2d.default, image, UP)
    assert found == (expected if copies_output else [OUT])


def test_windows_begin_as_large_as_their_input(events: Events) -> None:
    """Of 8 x 10 numbers 7 x 9 windows of 2 x 2 are 3 x 4 x 63 numbers of an image."""
    how = ([2, 2], [1, 1], [0, 0], [1, 1])
    grown = [("take", IMAGE_BYTES), OUT, ("give", IMAGE_BYTES)]
    assert events(aten.im2col.default, meta(*IMAGE), *how) == grown
    # summed up, they need less than they began with: 2 x 12 x 63 numbers
    columns = meta(2, 12, 63)
    columns_bytes = 2 * 12 * 63 * 4
    whole = ("output", (0, columns_bytes))
    assert events(aten.col2im.default, columns, [8, 10], *how) == [whole]
    assert events(aten.col2im.default, expanded(2, 12, 63), [8, 10], *how) == [
        whole,
        ("take", columns_bytes),
        ("give", columns_bytes),
    ]


@pytest.mark.parametrize(("step", "places"), [(2, copied(8 * 10)), (4, [OUT])])
def test_overlapping_windows_list_places(events: Events, step: int, places: Any) -> None:
    """Windows of 4 along 11 numbers: an int64 for each that they cover, where they overlap."""
    count = (11 - 4) // step + 1
    arguments = (meta(8, count, 4), [8, 11], 1, 4, step)
    assert events(aten.unfold_backward.default, *arguments) == places


@pytest.mark.parametrize(
    ("tensor", "shifts", "dims", "expected"),
    [
        (meta(8, 10), [3], [1], [OUT]),
        (expanded(8, 10), [3], [1], before(320)),
        (expanded(8, 10), [3], [], before(320)),
        (meta(8, 10), [3, 2], [0, 1], before(320)),
        # the copy is done with when the first dimension is rolled
        (
            expanded(8, 10),
            [3, 2],
            [0, 1],
            [("take", 320), ("take", 320), ("give", 320), OUT, ("give", 320)],
        ),
    ],
)
def test_roll(
    events: Events, tensor: torch.Tensor, shifts: list[int], dims: list[int], expected: Any
) -> None:
    assert events(aten.roll.default, tensor, shifts, dims) == expected


NONE, MEAN = 0, 1
ROWS_BYTES, TARGETS_BYTES = 8 * 5 * 4, 8 * 8  # 8 rows of 5 classes


@pytest.mark.parametrize(
    ("op", "arguments", "expected"),
    [
        (
            "nll_loss_forward",
            (apart(8, 5), indices(8), None, MEAN, -100),
            copied(ROWS_BYTES, 2),
        ),
        (
            "nll_loss_backward",
            (expanded(8), meta(8, 5), indices(8), None, NONE, -100, meta()),
            copied(8 * 4),
        ),
        (
            "nll_loss2d_forward",
            (meta(2, 5, 4, 6), indices(2, 4, 6), None, MEAN, -100),
            [OUT_1, OUT],
        ),
        (
            "nll_loss2d_forward",
            (apart(2, 5, 4, 6), indices(2, 4, 6), None, MEAN, -100),
            [OUT_1, OUT, ("take", 960), ("give", 960)],
        ),
        (
            "nll_loss2d_forward",
            (apart(2, 5, 4, 6), indices(2, 4, 6), None, NONE, -100),
            [OUT_1, OUT],
        ),
        (
            "nll_loss2d_backward",
            (meta(), meta(2, 5, 4, 6), apart(2, 4, 6, dtype=I64), None, MEAN, -100, meta()),
            copied(2 * 4 * 6 * 8),
        ),
        ("multi_margin_loss", (meta(8, 5), indices(8), 1, 1, None, MEAN), copied(8 * 4)),
        ("multi_margin_loss", (meta(8, 5), indices(8), 1, 1, None, NONE), [OUT]),
        ("multi_margin_loss", (meta(5), indices(1), 1, 1, None, MEAN), [OUT]),
        (
            "multilabel_margin_loss_forward",
            (meta(8, 5), indices(8, 5), MEAN),
            [OUT_1, ("take", 8 * 4), OUT, ("give", 8 * 4)],
        ),
        (
            "multilabel_margin_loss_forward",
            (expanded(5), indices(5), MEAN),
            [("take", 20), OUT_1, OUT, ("give", 20)],
        ),
    ],
)
def test_losses_by_rows(events: Events, op: str, arguments: Sequence[Any], expected: Any) -> None:
    assert events(getattr(aten, op).default, *arguments) == expected


@pytest.mark.parametrize("is_training", [True, False])
def test_a_random_slope_is_written_beside_each_element(events: Events, is_training: bool) -> None:
    arguments = (apart(8, 10), meta(8, 10), 0.1, 0.3, is_training)
    expected = copied(320) if is_training else [OUT]
    assert events(aten.rrelu_with_noise.default, *arguments) == expected


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [
        (meta(2, 3, 4, 5), torch.contiguous_format),
        (last(2, 3, 4, 5), torch.channels_last),
        (last(2, 3, 4, 5, 6), torch.channels_last_3d),
        (last(2, 1, 4, 5), torch.channels_last),  # its strides are 20, 1, 5, 1
        (meta(2, 1, 4, 5), torch.contiguous_format),  # 20, 20, 5, 1
        (expanded(2, 3, 4, 5), torch.contiguous_format),
        (last(2, 6, 4, 5)[:, ::2], torch.channels_last),  # with holes
        (meta(3, 4, 5).transpose(0, 1), torch.contiguous_format),
    ],
)
def test_strides_suggest_a_format(tensor: torch.Tensor, expected: torch.memory_format) -> None:
    assert suggested_format(tensor) is expected


def test_an_order_names_operands_that_may_be_missing() -> None:
    func = aten.nll_loss_forward.default
    call = Call(None, func, (meta(), meta()))  # type: ignore[arg-type]
    assert list(copies(call, "outputs, weight, target", (meta(8, 5), indices(8), None))) == [
        OUTPUTS
    ]
