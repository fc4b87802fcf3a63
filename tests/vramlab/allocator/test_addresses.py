"""Addresses of cudaMalloc: as an H200's driver gave them, and never two at one place."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramlab.allocator.addresses import CHUNK_BYTES, AddressSpace
from vramlab.units import GIB, MIB

RECORDED = Path(__file__).with_name("addresses_of_h200.json.gz")
"""Sequences of cudaMalloc and cudaFree in a process of their own: for each call the size in pages
of 2 MiB, or -1 for a free, and the address in pages after the sequence's first one."""
PAGE_BYTES = 2 * MIB

SEQUENCES = json.loads(gzip.decompress(RECORDED.read_bytes()))


@pytest.fixture
def space() -> AddressSpace:
    return AddressSpace(start=GIB, size_bytes=64 * GIB)


def taken(address: int | None) -> int:
    assert address is not None
    return address


@pytest.mark.parametrize("sequence", SEQUENCES, ids=lambda sequence: f"{len(sequence)} calls")
def test_a_drivers_addresses_are_foretold(sequence: list[list[int]]) -> None:
    space = AddressSpace(start=1 << 44, size_bytes=1 << 44)
    first = None
    for pages, place in sequence:
        if pages >= 0:
            address = taken(space.take(pages * PAGE_BYTES))
            first = address if first is None else first
            assert address - first == place * PAGE_BYTES
        else:
            assert first is not None
            space.give_back(first + place * PAGE_BYTES)


def test_large_memory_is_taken_from_the_top_down(space: AddressSpace) -> None:
    first, second = (taken(space.take(64 * MIB)) for _ in range(2))
    assert second == first - 64 * MIB


def test_what_is_left_of_the_newest_chunk_serves_first(space: AddressSpace) -> None:
    # 40 MiB take a chunk of 64; the 24 that are left serve 20, though the context left 24 as well.
    first = taken(space.take(40 * MIB))
    assert taken(space.take(20 * MIB)) == first + 40 * MIB
    # 4 MiB are left there: 22 MiB go to the place that the context left.
    assert taken(space.take(22 * MIB)) > first + 64 * MIB


def test_a_chunk_that_is_free_again_serves_another_size(space: AddressSpace) -> None:
    first = taken(space.take(64 * MIB))
    second = taken(space.take(64 * MIB))
    space.give_back(first)
    # The driver maps more than it needs: a gap of exactly 64 MiB is passed over.
    assert taken(space.take(64 * MIB)) == second - 64 * MIB
    assert taken(space.take(32 * MIB)) == first + 32 * MIB


def test_reserved_addresses_are_shared_with_nobody(space: AddressSpace) -> None:
    reserved = taken(space.reserve(40 * MIB))
    assert not reserved <= taken(space.take(24 * MIB)) < reserved + 64 * MIB
    assert space.give_back(reserved) == 64 * MIB  # two chunks of 32


def test_addresses_run_out(space: AddressSpace) -> None:
    assert space.take(65 * GIB) is None
    assert space.reserve(65 * GIB) is None


@given(st.lists(st.integers(-20, 60), max_size=60))
def test_no_two_share_an_address(program: list[int]) -> None:
    """A positive number allocates so many pages; any other frees an allocated range."""
    space, live = AddressSpace(0, 40 * CHUNK_BYTES), dict[int, int]()
    for number in program:
        if number <= 0:
            if live:
                address = sorted(live)[-number % len(live)]
                assert space.give_back(address) == live.pop(address)
            continue
        size_bytes = number * PAGE_BYTES
        new = space.take(size_bytes)
        if new is not None:
            assert all(new + size_bytes <= start or start + n <= new for start, n in live.items())
            assert 0 <= new < new + size_bytes <= 40 * CHUNK_BYTES
            live[new] = size_bytes
