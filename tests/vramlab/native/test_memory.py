"""The substitutes' memory: what is counted, where it lies, and what can be read there."""

from __future__ import annotations

import random

import pytest

from vramlab import catalogue
from vramlab.allocator.addresses import AddressSpace
from vramlab.units import MIB

T4 = catalogue.find("T4")


def test_free_memory_is_total_without_context_and_allocations(answer) -> None:
    before, after, freed = answer("""
        before = memory()
        address = malloc(3 * MIB)
        after = memory()
        call(cuda.cudaFree, address)
        answer = before, after, memory()
    """)
    free_bytes = T4.total_bytes - T4.context_bytes
    assert before == freed == [free_bytes, T4.total_bytes]
    assert after == [free_bytes - 4 * MIB, T4.total_bytes]  # the driver's pages have 2 MiB


def test_out_of_memory_is_told_once_and_takes_nothing(answer) -> None:
    statuses, left = answer("""
        free, total = memory()
        address = c_void_p()
        sizes = [free // (2 * MIB) * 2 * MIB + 1, free // (2 * MIB) * 2 * MIB, 1]
        statuses = [cuda.cudaMalloc(byref(address), c_size_t(size)) for size in sizes]
        statuses += [cuda.cudaPeekAtLastError(), cuda.cudaGetLastError(), cuda.cudaGetLastError()]
        answer = statuses, memory()[0]
    """)
    assert statuses == [2, 0, 2, 2, 2, 0]  # cudaErrorMemoryAllocation is 2
    assert left == (T4.total_bytes - T4.context_bytes) % (2 * MIB)


def test_bad_arguments_get_the_errors_of_the_reference(answer) -> None:
    assert answer("""
        address = malloc(MIB)
        call(cuda.cudaFree, address)
        nothing = c_void_p(1)
        answer = [
            cuda.cudaFree(address), cuda.cudaFree(c_void_p(12345)), cuda.cudaFree(None),
            cuda.cudaMalloc(byref(nothing), c_size_t(0)), nothing.value, cuda.cudaSetDevice(1),
            cuda.cudaMalloc(byref(nothing), c_size_t(2**64 - 1)),
        ]
    """) == [1, 1, 0, 0, None, 101, 2]


@pytest.mark.parametrize("seed", range(4))
def test_addresses_are_those_of_the_rule_in_python(answer, seed: int) -> None:
    """Sizes around the 2 MiB page and the 32 MiB chunk, in a random order of taking and giving."""
    rng = random.Random(seed)
    steps: list[tuple[str, int]] = []
    held = 0
    for _ in range(300):
        if held and rng.random() < 0.45:
            steps.append(("free", rng.randrange(held)))
            held -= 1
        else:
            steps.append(("take", 2 * MIB * rng.choice([1, 1, 1, 5, 10, 16, 17, 40])))
            held += 1
    space, held_addresses, expected = AddressSpace(1 << 44, 1 << 44), [], []
    for verb, number in steps:
        if verb == "free":
            space.give_back(held_addresses.pop(number))
        else:
            address = space.take(number)
            assert address is not None
            held_addresses.append(address)
            expected.append(address)
    found = answer(
        f"""
        held, answer = [], []
        for verb, number in {steps}:
            if verb == "free":
                call(cuda.cudaFree, held.pop(number))
            else:
                held.append(malloc(number))
                answer.append(held[-1].value)
        """,
        gpu="B200",
    )
    assert [each - found[0] for each in found] == [each - expected[0] for each in expected]


def test_copies_there_and_back_are_true(answer) -> None:
    assert answer("""
        there, other = malloc(8 * MIB), malloc(8 * MIB)
        data = bytes(range(256)) * 4096  # 1 MiB
        back = ctypes.create_string_buffer(len(data))
        copy(at(there, 12345), data, len(data))
        copy(other, at(there, 12345), len(data))
        copy(back, other, len(data))
        same = back.raw == data
        copy(back, at(other, MIB), len(data))
        nothing = back.raw == bytes(len(data))
        call(cuda.cudaMemset, at(other, 10), 7, c_size_t(20))
        copy(back, other, 40)
        call(cuda.cudaMemset, other, 0, c_size_t(MIB))
        zeros = ctypes.create_string_buffer(b"x" * 40, 40)
        copy(zeros, other, 40)
        answer = same, nothing, list(back.raw[:40]), zeros.raw == bytes(40)
    """) == [True, True, [*range(10), *[7] * 20, *range(30, 40)], True]


def test_memory_that_was_freed_reads_as_zeros(answer) -> None:
    first, second, read = answer("""
        address = malloc(2 * MIB)
        copy(address, b"abc", 3)
        call(cuda.cudaFree, address)
        again = malloc(2 * MIB)
        back = ctypes.create_string_buffer(3)
        copy(back, again, 3)
        answer = address.value, again.value, list(back.raw)
    """)
    assert first == second
    assert read == [0, 0, 0]


def test_moving_what_nobody_wrote_takes_no_memory_of_the_host(answer) -> None:
    grown = answer(
        """
        def resident():
            return int(open("/proc/self/statm").read().split()[1]) * 4096
        size = 4096 * MIB
        one, other = malloc(size), malloc(size)
        copy(at(one, 5000), b"x", 1)
        before = resident()
        copy(other, one, size)
        call(cuda.cudaMemset, one, 0, c_size_t(size))
        back = ctypes.create_string_buffer(1)
        copy(back, at(other, 5000), 1)
        assert back.raw == b"x"
        answer = resident() - before
        """,
        gpu="H200",
    )
    assert grown < 16 * MIB  # of 4 GiB


def test_copies_that_the_host_has_no_room_for_are_reported(answer) -> None:
    read = answer(
        """
        there = malloc(64 * MIB)
        copy(there, b"a" * (32 * MIB), 32 * MIB)
        copy(there, b"b", 1)  # small ones are kept
        back = ctypes.create_string_buffer(2)
        copy(back, there, 2)
        answer = list(back.raw)
        """,
        host_bytes=1,
    )
    assert read == [ord("b"), 0]
    assert [(call.library, call.function, call.count) for call in answer.calls()] == [
        ("values", "not kept: no room on the host", 1)
    ]


def test_pinned_memory_is_known_as_the_hosts(answer) -> None:
    assert answer("""
        class Attributes(ctypes.Structure):
            _fields_ = [("type", c_int), ("device", c_int), ("there", c_void_p), ("here", c_void_p)]
        def kind(address):
            found = Attributes()
            call(cuda.cudaPointerGetAttributes, byref(found), address)
            return found.type, found.device
        pinned, own = c_void_p(), ctypes.create_string_buffer(5000)
        call(cuda.cudaHostAlloc, byref(pinned), c_size_t(5000), 0)
        kinds = [kind(pinned), kind(at(pinned, 4999)), kind(malloc(1)), kind(own)]
        call(cuda.cudaHostRegister, own, c_size_t(5000), 0)
        twice = cuda.cudaHostRegister(own, c_size_t(5000), 0)
        kinds += [kind(own)]
        call(cuda.cudaHostUnregister, own)
        answer = kinds, twice, cuda.cudaHostUnregister(own), cuda.cudaFreeHost(pinned)
    """) == [[[1, 0], [1, 0], [2, 0], [0, -2], [1, 0]], 712, 713, 0]


def test_virtual_memory_counts_what_is_created_and_not_what_is_reserved(answer) -> None:
    """What expandable segments do: reserve, create, map, unmap, release."""
    used, statuses = answer("""
        driver.cuMemAddressReserve.argtypes = [c_void_p, c_size_t, c_size_t, c_uint64, c_uint64]
        driver.cuMemMap.argtypes = [c_uint64, c_size_t, c_size_t, c_uint64, c_uint64]
        driver.cuMemUnmap.argtypes = driver.cuMemAddressFree.argtypes = [c_uint64, c_size_t]
        driver.cuMemRelease.argtypes = [c_uint64]
        full = memory()[0]
        used = []
        start, pages = c_uint64(), []
        call(driver.cuMemAddressReserve, byref(start), 2**34, 0, 0, 0)
        used.append(full - memory()[0])
        properties = (c_int * 8)(1, 0, 1, 0)  # pinned, no handles, on a device, number 0
        for number in range(2):
            page = c_uint64()
            call(driver.cuMemCreate, byref(page), c_size_t(20 * MIB), properties, c_uint64(0))
            pages.append(page.value)
            call(driver.cuMemMap, start.value + number * 20 * MIB, 20 * MIB, 0, page.value, 0)
        used.append(full - memory()[0])
        statuses = [driver.cuMemMap(start.value + 10 * MIB, 20 * MIB, 0, pages[0], 0)]  # occupied
        statuses += [driver.cuMemUnmap(start.value, 10 * MIB)]  # half of a mapping
        call(driver.cuMemUnmap, start.value, 20 * MIB)
        used.append(full - memory()[0])  # unmapped, not released yet
        call(driver.cuMemRelease, pages[0])
        used.append(full - memory()[0])
        call(driver.cuMemRelease, pages[1])  # still mapped
        used.append(full - memory()[0])
        statuses += [driver.cuMemAddressFree(start.value, 2**34)]  # something is mapped
        call(driver.cuMemUnmap, start.value + 20 * MIB, 20 * MIB)
        call(driver.cuMemAddressFree, start.value, 2**34)
        used.append(full - memory()[0])
        huge = driver.cuMemCreate(byref(page), c_size_t(2**40), properties, c_uint64(0))
        answer = used, [*statuses, huge]
    """)
    assert used == [0, 40 * MIB, 40 * MIB, 20 * MIB, 20 * MIB, 0]
    assert statuses == [1, 1, 1, 2]  # invalid value three times, then out of memory


def test_pools_count_what_is_used_and_keep_up_to_their_threshold(answer) -> None:
    assert answer("""
        pool = c_void_p()
        call(cuda.cudaDeviceGetDefaultMemPool, byref(pool), 0)
        def attribute(number):
            value = c_uint64()
            call(cuda.cudaMemPoolGetAttribute, pool, number, byref(value))
            return value.value
        address = c_void_p()
        call(cuda.cudaMallocAsync, byref(address), c_size_t(33 * MIB - 1), None)
        full = [attribute(number) for number in (5, 6, 7, 8)]  # reserved and used, with high marks
        call(cuda.cudaMemPoolSetAttribute, pool, 4, byref(c_uint64(2**64 - 1)))  # keep everything
        call(cuda.cudaFreeAsync, address, None)
        kept = [attribute(number) for number in (5, 7)]
        call(cuda.cudaMemPoolTrimTo, pool, c_size_t(0))
        answer = full, kept, [attribute(number) for number in (5, 6, 7, 8)]
    """) == [
        [64 * MIB, 64 * MIB, 33 * MIB, 33 * MIB],  # two steps of 32 MiB
        [64 * MIB, 0],
        [0, 64 * MIB, 0, 33 * MIB],
    ]
