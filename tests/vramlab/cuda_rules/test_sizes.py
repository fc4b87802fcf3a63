"""Bytes of tensors, blocks and segments, and what is split, by hand."""

from __future__ import annotations

import pytest

from vramlab.cuda_rules.sizes import (
    block_bytes,
    segment_size,
    should_split,
    tensor_bytes,
    unsplit_remainder_bytes,
)
from vramlab.units import MIB


def test_tensor_bytes() -> None:
    assert tensor_bytes((1024, 2048)) == 8_388_608  # 1024 x 2048 x 4
    assert tensor_bytes((10240, 1024), "float16") == 20 * MIB  # 10240 x 1024 x 2
    assert tensor_bytes(()) == 4  # a scalar has one element


@pytest.mark.parametrize(
    ("request_bytes", "expected_bytes"),
    [(0, 0), (1, 512), (4, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)],
)
def test_block_bytes(request_bytes: int, expected_bytes: int) -> None:
    assert block_bytes(request_bytes) == expected_bytes


@pytest.mark.parametrize(
    ("request_bytes", "expected_bytes"),
    [
        (4, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 1, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB - 511, 10 * MIB),  # rounds up to 10 MiB, which has a segment of its own
        (10 * MIB + 1, 12 * MIB),
        (1_331_439_862, 1270 * MIB),  # 1.24 GiB: 1269.76 MiB, up to a multiple of 2 MiB
    ],
)
def test_segment_of_a_request(request_bytes: int, expected_bytes: int) -> None:
    assert segment_size(block_bytes(request_bytes)) == expected_bytes


@pytest.mark.parametrize(
    ("request_bytes", "found_bytes", "expected_bytes"),
    [
        (16 * MIB, 17 * MIB, MIB),  # a remainder of exactly 1 MiB is not split off ...
        (16 * MIB, 17 * MIB + 512, 0),  # ... and 512 B more are
        (600, 2 * MIB, 0),  # the small pool splits from 512 B on
        (512, 512, 0),
    ],
)
def test_unsplit_remainder_bytes(request_bytes: int, found_bytes: int, expected_bytes: int) -> None:
    assert unsplit_remainder_bytes(request_bytes, found_bytes) == expected_bytes


@pytest.mark.parametrize(
    ("found_bytes", "size_bytes", "max_split_bytes", "expandable", "splits"),
    [
        (2 * MIB, MIB, None, False, True),  # the small pool
        (1536, 1024, None, False, True),
        (1280, 1024, None, False, False),  # 256 B, by power-of-two rounding
        (3 * MIB + 512, 2 * MIB, None, False, True),
        (3 * MIB, 2 * MIB, None, False, False),
        (3 * MIB, 2 * MIB, None, True, True),  # 512 B are enough with expandable segments
        (50 * MIB, 20 * MIB, 21 * MIB, False, True),
        (50 * MIB, 21 * MIB, 21 * MIB, False, False),  # the request is not below the limit
        (50 * MIB, 21 * MIB, 21 * MIB, True, True),  # expandable segments know no limit
    ],
)
def test_should_split(
    found_bytes: int,
    size_bytes: int,
    max_split_bytes: int | None,
    expandable: bool,
    splits: bool,
) -> None:
    assert should_split(found_bytes, size_bytes, max_split_bytes, expandable=expandable) is splits
