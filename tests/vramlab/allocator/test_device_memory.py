"""The driver's side: bytes and addresses."""

from __future__ import annotations

import pytest

from vramlab.allocator import DeviceMemory
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
    assert memory.reserve_addresses(100 * MIB) == address


def test_a_context_that_does_not_fit_is_out_of_memory() -> None:
    memory = DeviceMemory(100 * MIB, used_by_others_bytes=50 * MIB)
    with pytest.raises(OutOfDeviceMemory) as caught:
        memory.context_bytes = 60 * MIB
    assert str(caught.value) == (
        "CUDA error: out of memory (the CUDA context needs 60.00 MiB more, "
        "50.00 MiB of 100.00 MiB is free)"
    )
    assert memory.context_bytes == 0
