"""Where tensors go that are allocated one after the other: by hand, and as the allocator does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vramlab.allocator import CachingAllocator, DeviceMemory
from vramlab.units import GIB, MIB
from vramlab_course.formulas.packing import packed, stranded_fraction


def test_packed_by_hand() -> None:
    # 4 B: a segment of 2 MiB. 12 MiB: a segment of its own. 19.5 MiB: 20 MiB, 0.5 of it not split
    # off. 1 MiB: into what is left of the first segment, 2 MiB - 512.
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
