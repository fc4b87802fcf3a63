"""When memory runs out: the cache goes first, then comes PyTorch's message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from allocator_invariants import check

from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory
from vramlab.errors import OutOfDeviceMemory, UnsupportedOnVirtualGPU
from vramlab.units import GIB, MIB

MakeAllocator = Callable[..., CachingAllocator]

ADVICE = (
    "If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation "
    "for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)


def pinned_holes(allocator: CachingAllocator, holes: int, hole_mib: int, pin_mib: int) -> None:
    """Leave holes that cannot be given back: in each segment another block stays in use."""
    filled = []
    for _ in range(holes):
        segment = allocator.malloc((hole_mib + pin_mib) * MIB)
        allocator.free(segment)
        allocator.malloc(pin_mib * MIB)
        filled.append(allocator.malloc(hole_mib * MIB))
    for block in filled:
        allocator.free(block)


def test_the_message_of_the_anatomy_of_an_oom(make_allocator: MakeAllocator) -> None:
    """1.24 GiB are asked for and 3.87 GiB are cached, but in four pieces of 991 MiB."""
    allocator = make_allocator(total_bytes=16158 * MIB)  # 15.78 GiB
    allocator.memory.context_bytes = 2341 * MIB // 2
    pinned_holes(allocator, holes=4, hole_mib=991, pin_mib=2647)
    with pytest.raises(OutOfDeviceMemory) as caught:
        allocator.malloc(1270 * MIB)
    # reserved: 4 x (991 + 2647) = 14552 MiB = 14.21 GiB; free: 16158 - 1170.5 - 14552 = 435.5 MiB
    assert allocator.reserved_bytes == 14552 * MIB
    assert str(caught.value) == (
        "CUDA out of memory. Tried to allocate 1.24 GiB. "  # 1270 / 1024
        "GPU 0 has a total capacity of 15.78 GiB of which 435.50 MiB is free. "
        "Including non-PyTorch memory, this process has 15.35 GiB memory in use. "  # 15722.5 / 1024
        "Of the allocated memory 10.34 GiB is allocated by PyTorch, "  # 4 x 2647 / 1024
        f"and 3.87 GiB is reserved by PyTorch but unallocated. {ADVICE}"  # 4 x 991 / 1024
    )
    assert caught.value.requested_bytes == caught.value.segment_bytes == 1270 * MIB


def test_tried_to_allocate_is_the_segment_not_the_request(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(total_bytes=10 * MIB, device=3)
    with pytest.raises(OutOfDeviceMemory, match=r"Tried to allocate 20\.00 MiB\. GPU 3 ") as caught:
        allocator.malloc(3 * MIB)
    assert (caught.value.requested_bytes, caught.value.segment_bytes) == (3 * MIB, 20 * MIB)


def test_800_mib_after_two_cached_segments_of_500(make_allocator: MakeAllocator) -> None:
    """Whole segments can be given back, so this works, at the price of a retry."""
    allocator = make_allocator(total_bytes=1000 * MIB)
    for block in [allocator.malloc(500 * MIB) for _ in range(2)]:
        allocator.free(block)
    allocator.malloc(800 * MIB)
    stats = allocator.stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 0)
    assert (stats["num_device_alloc"], stats["num_device_free"]) == (3, 2)
    assert stats["num_sync_all_streams"] == 1
    assert allocator.reserved_bytes == 800 * MIB


def test_800_mib_do_not_fit_into_two_holes_of_500(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(total_bytes=1100 * MIB)
    pinned_holes(allocator, holes=2, hole_mib=500, pin_mib=50)
    with pytest.raises(OutOfDeviceMemory, match=r"Tried to allocate 800\.00 MiB.* 0 bytes is free"):
        allocator.malloc(800 * MIB)
    stats = allocator.stats()
    assert (stats["num_alloc_retries"], stats["num_ooms"]) == (1, 1)
    assert allocator.reserved_bytes - allocator.allocated_bytes == 1000 * MIB


def test_expandable_segments_move_the_pages_of_the_holes(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator("expandable_segments:True", total_bytes=1100 * MIB)
    first, pin, second, pin2 = (allocator.malloc(size * MIB) for size in (500, 40, 500, 40))
    allocator.free(first)
    allocator.free(second)
    allocator.malloc(800 * MIB)
    assert allocator.allocated_bytes == (40 + 40 + 800) * MIB
    assert pin.allocated
    assert pin2.allocated


def test_after_an_error_the_allocator_can_be_used_again(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(total_bytes=100 * MIB)
    block = allocator.malloc(60 * MIB)
    with pytest.raises(OutOfDeviceMemory):
        allocator.malloc(60 * MIB)
    allocator.free(block)
    assert allocator.malloc(90 * MIB).size_bytes == 90 * MIB


def test_somebody_elses_memory_is_missing(make_allocator: MakeAllocator) -> None:
    memory = DeviceMemory(100 * MIB, used_by_others_bytes=70 * MIB)
    allocator = CachingAllocator(memory)
    with pytest.raises(OutOfDeviceMemory, match=r"30\.00 MiB is free.*this process has 0 bytes"):
        allocator.malloc(40 * MIB)
    check(allocator)


class TestMemoryFraction:
    def test_it_limits_what_is_reserved(self, make_allocator: MakeAllocator) -> None:
        allocator = make_allocator(total_bytes=GIB)
        allocator.memory_fraction = 0.5
        assert allocator.memory_fraction == 0.5
        allocator.malloc(300 * MIB)
        with pytest.raises(OutOfDeviceMemory) as caught:
            allocator.malloc(300 * MIB)
        assert (
            "of which 724.00 MiB is free. Including non-PyTorch memory, this process has "
            "300.00 MiB memory in use. 512.00 MiB allowed; Of the allocated memory 300.00 MiB "
            "is allocated by PyTorch"
        ) in str(caught.value)
        allocator.malloc(212 * MIB)  # exactly what is allowed

    def test_the_cache_goes_before_it_fails(self, make_allocator: MakeAllocator) -> None:
        allocator = make_allocator("per_process_memory_fraction:0.5", total_bytes=GIB)
        allocator.free(allocator.malloc(300 * MIB))
        allocator.malloc(400 * MIB)
        assert allocator.stats()["num_alloc_retries"] == 1

    def test_throwing_at_once_keeps_the_cache(self, make_allocator: MakeAllocator) -> None:
        allocator = make_allocator(
            "per_process_memory_fraction:0.5,throw_on_cudamalloc_oom:True", total_bytes=GIB
        )
        allocator.free(allocator.malloc(300 * MIB))
        with pytest.raises(OutOfDeviceMemory, match=r"512\.00 MiB allowed"):
            allocator.malloc(400 * MIB)
        stats = allocator.stats()
        assert (stats["num_oom_rejections"], stats["num_alloc_retries"]) == (1, 0)
        assert allocator.reserved_bytes == 300 * MIB


def test_observers_are_called_before_the_error(make_allocator: MakeAllocator) -> None:
    allocator = make_allocator(total_bytes=100 * MIB, device=2)
    calls: list[tuple[int, int, int, int]] = []
    allocator.add_oom_observer(lambda *call: calls.append(call))
    allocator.malloc(90 * MIB)
    with pytest.raises(OutOfDeviceMemory):
        allocator.malloc(2 * MIB)
    # device, asked of the driver, allowed (all there is), free: 100 - 90
    assert calls == [(2, 20 * MIB, 100 * MIB, 10 * MIB)]


def test_the_asynchronous_backend_is_not_modelled() -> None:
    with pytest.raises(UnsupportedOnVirtualGPU, match="leave the backend at native"):
        CachingAllocator(DeviceMemory(GIB), AllocatorSettings.parse("backend:cudaMallocAsync"))
