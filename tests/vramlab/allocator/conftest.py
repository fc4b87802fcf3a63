"""Allocators to try things on. Whatever a test does, the books must balance when it ends."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from allocator_invariants import check

from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory
from vramlab.units import GIB

MakeAllocator = Callable[..., CachingAllocator]


@pytest.fixture
def make_allocator() -> Iterator[MakeAllocator]:
    """Make an allocator from a text of settings, on a GPU of `total_bytes` (default 16 GiB)."""
    made: list[CachingAllocator] = []

    def make(settings: str = "", total_bytes: int = 16 * GIB, device: int = 0) -> CachingAllocator:
        memory = DeviceMemory(total_bytes, ordinal=device)
        allocator = CachingAllocator(memory, AllocatorSettings.parse(settings), device)
        made.append(allocator)
        return allocator

    yield make
    for allocator in made:
        check(allocator)


@pytest.fixture
def allocator(make_allocator: MakeAllocator) -> CachingAllocator:
    """An allocator with PyTorch's default settings on a GPU of 16 GiB."""
    return make_allocator()
