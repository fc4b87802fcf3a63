"""The numbers of torch.cuda.memory_stats(), and torch's own Python code that shows them."""

from __future__ import annotations

import pytest

from vramlab.allocator import CachingAllocator
from vramlab.allocator.statistics import POOLED, Counter
from vramlab.units import KIB, MIB


def test_a_counter_knows_where_it_stands_and_how_high_it_was() -> None:
    counter = Counter()
    counter.increase(5)
    counter.increase(3)
    assert counter.as_dict() == {"current": 8, "peak": 8, "allocated": 8, "freed": 0}
    counter.decrease(6)
    counter.increase(1)
    assert counter.as_dict() == {"current": 3, "peak": 8, "allocated": 9, "freed": 6}


def test_the_keys_are_torchs(allocator: CachingAllocator) -> None:
    stats = allocator.stats()
    assert set(stats) == {
        *POOLED,
        "num_alloc_retries",
        "num_ooms",
        "num_sync_all_streams",
        "num_device_alloc",
        "num_device_free",
        "num_oom_rejections",
        "max_split_size",
        "oversize_allocations",
        "oversize_segments",
        "reserved_bytes_by_private_pools",
    }
    for name in POOLED:
        assert set(stats[name]) == {"all", "small_pool", "large_pool"}
        for pool in stats[name].values():
            assert set(pool) == {"current", "peak", "allocated", "freed"}


def test_both_pools_add_up(allocator: CachingAllocator) -> None:
    small, large = allocator.malloc(1000), allocator.malloc(3 * MIB)
    allocator.free(large)
    stats = allocator.stats()
    assert stats["allocated_bytes"] == {
        "all": {
            "current": 1024,
            "peak": 1024 + 3 * MIB,
            "allocated": 1024 + 3 * MIB,
            "freed": 3 * MIB,
        },
        "small_pool": {"current": 1024, "peak": 1024, "allocated": 1024, "freed": 0},
        "large_pool": {"current": 0, "peak": 3 * MIB, "allocated": 3 * MIB, "freed": 3 * MIB},
    }
    assert stats["requested_bytes"]["all"]["peak"] == 1000 + 3 * MIB
    assert stats["segment"]["all"]["current"] == 2
    assert stats["reserved_bytes"]["all"]["current"] == 22 * MIB
    assert small.allocated


def test_the_peak_of_all_is_not_the_sum_of_the_peaks(allocator: CachingAllocator) -> None:
    allocator.free(allocator.malloc(MIB))
    allocator.free(allocator.malloc(3 * MIB))
    stats = allocator.stats()["allocated_bytes"]
    assert [stats[pool]["peak"] for pool in ("all", "small_pool", "large_pool")] == [
        3 * MIB,
        MIB,
        3 * MIB,
    ]


def test_accumulated_sums_can_be_reset(allocator: CachingAllocator) -> None:
    allocator.malloc(10 * MIB)
    allocator.reset_accumulated_stats()
    stats = allocator.stats()
    assert stats["num_device_alloc"] == 0
    assert stats["allocated_bytes"]["all"] == {
        "current": 10 * MIB, "peak": 10 * MIB, "allocated": 0, "freed": 0
    }  # fmt: skip


def test_torch_writes_its_summary_from_them(
    allocator: CachingAllocator, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda.memory, "is_initialized", lambda: True)
    monkeypatch.setattr(
        torch._C, "_cuda_memoryStats", lambda device: allocator.stats(), raising=False
    )
    allocator.malloc(1000 * KIB)
    allocator.free(allocator.malloc(300 * MIB))
    assert torch.cuda.memory.memory_allocated(0) == 1000 * KIB
    assert torch.cuda.memory.max_memory_allocated(0) == 300 * MIB + 1000 * KIB
    assert torch.cuda.memory.memory_reserved(0) == 302 * MIB
    flat = torch.cuda.memory.memory_stats(0)
    assert flat["inactive_split_bytes.small_pool.current"] == 2 * MIB - 1000 * KIB
    rows = {
        cells[1].strip(): [cell.strip() for cell in cells[2:6]]
        for line in torch.cuda.memory.memory_summary(0).splitlines()
        if len(cells := line.split("|")) > 5
    }
    # current, peak, allocated in all, freed in all
    assert rows["GPU reserved memory"] == [
        "309248 KiB",
        "309248 KiB",
        "309248 KiB",
        "0 B",
    ]  # 302 x 1024
    assert rows["Allocations"] == ["1", "2", "2", "1"]
