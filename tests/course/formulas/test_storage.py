"""What the allocator makes of a request, against arithmetic by hand and against the allocator."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramlab.allocator import CachingAllocator, DeviceMemory
from vramlab.cuda_rules.storage import (
    block_bytes,
    packed,
    segment_bytes,
    stranded_fraction,
    tensor_bytes,
    unsplit_bytes,
)
from vramlab.units import GIB, MIB


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
def test_segment_bytes(request_bytes: int, expected_bytes: int) -> None:
    assert segment_bytes(request_bytes) == expected_bytes


@pytest.mark.parametrize(
    ("request_bytes", "found_bytes", "stays_bytes"),
    [
        (16 * MIB, 17 * MIB, MIB),  # a rest of exactly 1 MiB is not split off ...
        (16 * MIB, 17 * MIB + 512, 0),  # ... and one byte more is
        (600, 2 * MIB, 0),  # the small pool splits from 512 B on
        (512, 512, 0),
    ],
)
def test_unsplit_bytes(request_bytes: int, found_bytes: int, stays_bytes: int) -> None:
    assert unsplit_bytes(request_bytes, found_bytes) == stays_bytes


def test_packed_by_hand() -> None:
    # 4 B: a segment of 2 MiB. 12 MiB: a segment of its own. 19.5 MiB: 20 MiB, 0.5 of it not split
    # off. 1 MiB: into the first segment's rest, 2 MiB - 512.
    sizes = (4, 12 * MIB, 19 * MIB + MIB // 2, MIB)
    allocated_bytes = 512 + 12 * MIB + 20 * MIB + MIB
    assert packed(sizes) == (allocated_bytes, (2 + 12 + 20) * MIB)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(min_value=0, max_value=30 * MIB), max_size=40))
def test_packed_is_what_the_allocator_does(sizes: list[int]) -> None:
    allocator = CachingAllocator(DeviceMemory(4 * GIB))
    blocks = [allocator.malloc(size_bytes) for size_bytes in sizes if size_bytes]
    assert len(blocks) == sum(size_bytes > 0 for size_bytes in sizes)
    assert packed(sizes) == (allocator.allocated_bytes, allocator.reserved_bytes)


def test_stranded_fraction() -> None:
    assert stranded_fraction(7 * MIB) == 0.3  # 20 - 2 x 7 = 6 of 20
    assert stranded_fraction(5 * MIB) == 0.0  # 4 x 5 = 20
    with pytest.raises(ValueError, match="that is from 1 MiB to 10 MiB"):
        stranded_fraction(10 * MIB)
