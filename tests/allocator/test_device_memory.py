"""The driver's side: bytes and addresses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramlab.allocator import DeviceMemory
from vramlab.allocator.device_memory import AddressSpace
from vramlab.errors import OutOfDeviceMemory
from vramlab.units import GIB, MIB


def taken(address: int | None) -> int:
    assert address is not None
    return address


def test_context_and_other_processes_count_as_used() -> None:
    memory = DeviceMemory(1000 * MIB, used_by_others_bytes=100 * MIB)
    memory.context_bytes = 300 * MIB
    assert memory.malloc(50 * MIB) is not None
    assert memory.free_bytes == (1000 - 100 - 300 - 50) * MIB
    assert memory.used_by_process_bytes == (300 + 50) * MIB


def test_cudamalloc_takes_whole_pages() -> None:
    memory = DeviceMemory(10 * MIB)
    memory.malloc(1)
    assert memory.free_bytes == 8 * MIB


def test_cudamalloc_fails_when_there_is_not_enough() -> None:
    memory = DeviceMemory(10 * MIB)
    assert memory.malloc(12 * MIB) is None
    assert memory.malloc(10 * MIB) is not None
    assert memory.malloc(1) is None


def test_the_lowest_gap_that_is_large_enough_is_used_again() -> None:
    memory = DeviceMemory(GIB)
    first, second, third = (taken(memory.malloc(size * MIB)) for size in (10, 20, 30))
    assert (second - first, third - second) == (10 * MIB, 20 * MIB)
    memory.free(first)
    assert taken(memory.malloc(12 * MIB)) == third + 30 * MIB  # the gap has 10 MiB
    assert taken(memory.malloc(4 * MIB)) == first
    memory.free(second)
    assert taken(memory.malloc(24 * MIB)) == first + 4 * MIB  # gaps of 6 and 20 MiB are one


@given(
    st.lists(
        st.one_of(st.integers(1, 8), st.integers(0, 20).map(lambda number: -number)), max_size=60
    )
)
def test_addresses_are_those_of_a_search_from_the_start(program: list[int]) -> None:
    """A positive number takes so many bytes; another gives back one of those that are taken."""
    space, live = AddressSpace(start=100, size_bytes=40), dict[int, int]()
    for number in program:
        if number <= 0:
            if live:
                address = sorted(live)[-number % len(live)]
                assert space.give_back(address) == live.pop(address)
            continue
        candidates = range(100, 140 - number + 1)
        expected = next((a for a in candidates if not _overlaps(a, number, live)), None)
        address_or_none = space.take(number)
        assert address_or_none == expected
        if address_or_none is not None:
            live[address_or_none] = number


def _overlaps(address: int, size_bytes: int, live: dict[int, int]) -> bool:
    return any(start < address + size_bytes and address < start + n for start, n in live.items())


def test_freeing_what_was_not_handed_out_is_an_error() -> None:
    memory = DeviceMemory(GIB)
    address = taken(memory.malloc(4 * MIB))
    with pytest.raises(ValueError, match=rf"{address + 2 * MIB:#x} is not the start of memory"):
        memory.free(address + 2 * MIB)


def test_two_gpus_never_hand_out_the_same_address() -> None:
    assert DeviceMemory(GIB, ordinal=0).malloc(1) != DeviceMemory(GIB, ordinal=1).malloc(1)


def test_reserved_addresses_take_no_memory_until_mapped() -> None:
    memory = DeviceMemory(10 * MIB)
    address = taken(memory.reserve_addresses(100 * MIB))
    assert memory.free_bytes == 10 * MIB
    assert memory.map_pages(6 * MIB)
    assert not memory.map_pages(6 * MIB)
    assert memory.free_bytes == 4 * MIB
    memory.unmap_pages(6 * MIB)
    memory.release_addresses(address)
    assert memory.free_bytes == 10 * MIB
    assert memory.malloc(2 * MIB) == address


def test_a_context_that_does_not_fit_is_out_of_memory() -> None:
    memory = DeviceMemory(100 * MIB, used_by_others_bytes=50 * MIB)
    with pytest.raises(OutOfDeviceMemory) as caught:
        memory.context_bytes = 60 * MIB
    assert str(caught.value) == (
        "CUDA error: out of memory (the CUDA context needs 60.00 MiB more, "
        "50.00 MiB of 100.00 MiB is free)"
    )
    assert memory.context_bytes == 0


def test_others_cannot_use_more_than_there_is() -> None:
    with pytest.raises(ValueError, match="others cannot use 11 bytes of a GPU of 10 bytes"):
        DeviceMemory(10, used_by_others_bytes=11)
