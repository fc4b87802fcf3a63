"""The numbers behind torch.cuda.memory_stats().

Every number is kept for the whole allocator and for each of its two pools, as in `DeviceStats` of
c10/core/CachingDeviceAllocator.h, PyTorch 2.13. `Tally.block_taken` and `Tally.block_freed` run for
every tensor, so they are spelled out instead of calling `Counter` five times.
"""

from __future__ import annotations

from typing import Any

POOLED = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)
"""Names of the numbers kept per pool, in the order in which torch lists them."""


PoolId = tuple[int, int]
"""What PyTorch calls a memory pool: `MempoolId_t`."""

DEFAULT_POOL_ID: PoolId = (0, 0)
"""The memory pool of everything that no CUDA graph and no MemPool owns."""


class Counter:
    """A number that rises and falls: where it stands, how high it was, how much came and went.

    Two of the four are computed when they are read, to keep `increase` cheap. A number is at its
    highest just before it falls, so only `decrease` has to look at the peak. The sum of all rises
    is what stands plus what fell, less what stood when the sums were last reset.
    """

    __slots__ = ("_standing_at_reset", "current", "freed", "highest")

    def __init__(self) -> None:
        self.current = 0
        self.freed = 0
        self.highest = 0
        self._standing_at_reset = 0

    def increase(self, amount: int) -> None:
        self.current += amount

    def decrease(self, amount: int) -> None:
        current = self.current
        if current > self.highest:
            self.highest = current
        self.current = current - amount
        self.freed += amount

    def change(self, amount: int) -> None:
        """Rise or fall, by the sign of `amount`."""
        if amount >= 0:
            self.current += amount
        else:
            self.decrease(-amount)

    @property
    def peak(self) -> int:
        return max(self.highest, self.current)

    @property
    def allocated(self) -> int:
        return self.current + self.freed - self._standing_at_reset

    def reset_peak(self) -> None:
        self.highest = self.current

    def reset_accumulated(self) -> None:
        self.freed = 0
        self._standing_at_reset = self.current

    def as_dict(self) -> dict[str, int]:
        return {
            "current": self.current,
            "peak": self.peak,
            "allocated": self.allocated,
            "freed": self.freed,
        }


class Tally:
    """The nine counters of one pool, or of both together."""

    __slots__ = POOLED

    def __init__(self) -> None:
        self.allocation = Counter()
        self.segment = Counter()
        self.active = Counter()
        self.inactive_split = Counter()
        self.allocated_bytes = Counter()
        self.reserved_bytes = Counter()
        self.active_bytes = Counter()
        self.inactive_split_bytes = Counter()
        self.requested_bytes = Counter()

    def counters(self) -> dict[str, Counter]:
        return {name: getattr(self, name) for name in POOLED}

    def block_taken(self, size_bytes: int, requested_bytes: int) -> None:
        """Count a block that went to the program."""
        self.allocation.current += 1
        self.allocated_bytes.current += size_bytes
        self.active.current += 1
        self.active_bytes.current += size_bytes
        self.requested_bytes.current += requested_bytes

    def block_freed(self, size_bytes: int, requested_bytes: int) -> None:
        """Count a block that is no longer used: `decrease`, five times."""
        counter = self.allocation
        current = counter.current
        if current > counter.highest:
            counter.highest = current
        counter.current = current - 1
        counter.freed += 1
        counter = self.allocated_bytes
        current = counter.current
        if current > counter.highest:
            counter.highest = current
        counter.current = current - size_bytes
        counter.freed += size_bytes
        counter = self.active
        current = counter.current
        if current > counter.highest:
            counter.highest = current
        counter.current = current - 1
        counter.freed += 1
        counter = self.active_bytes
        current = counter.current
        if current > counter.highest:
            counter.highest = current
        counter.current = current - size_bytes
        counter.freed += size_bytes
        counter = self.requested_bytes
        current = counter.current
        if current > counter.highest:
            counter.highest = current
        counter.current = current - requested_bytes
        counter.freed += requested_bytes

    def free_requested(self, size_bytes: int) -> None:
        """Count a block given back that a stream may still be using."""
        self.allocation.decrease(1)
        self.allocated_bytes.decrease(size_bytes)

    def free_completed(self, size_bytes: int, requested_bytes: int) -> None:
        """Count a block given back earlier that no stream uses any more."""
        self.active.decrease(1)
        self.active_bytes.decrease(size_bytes)
        self.requested_bytes.decrease(requested_bytes)

    def inactive_split_changed(self, blocks: int, size_bytes: int) -> None:
        """Free pieces of segments that are partly in use became more or fewer."""
        if blocks:
            self.inactive_split.change(blocks)
        self.inactive_split_bytes.change(size_bytes)


class PrivateReserve:
    """What is reserved for one private pool, as `reserved_bytes` of `Tally` counts it for all."""

    __slots__ = ("all", "large_pool", "small_pool")

    def __init__(self) -> None:
        self.all = Counter()
        self.small_pool = Counter()
        self.large_pool = Counter()

    def change(self, size_bytes: int, is_small: bool) -> None:
        """Count memory that came from the driver, or (negative) went back to it."""
        self.all.change(size_bytes)
        (self.small_pool if is_small else self.large_pool).change(size_bytes)

    def counters(self) -> dict[str, Counter]:
        return {
            "all": self.all,
            "small_pool": self.small_pool,
            "large_pool": self.large_pool,
        }


class Statistics:
    """All numbers of one allocator.

    Attributes:
        private_pools: what is reserved for each private pool that ever had memory.
        num_alloc_retries: cache flushes because the driver had no memory left.
        num_ooms: out-of-memory errors.
        num_sync_all_streams: times that the allocator waited for every stream.
        num_device_alloc: calls that took memory from the driver (cudaMalloc or map).
        num_device_free: calls that gave memory back (cudaFree or unmap).
        num_oom_rejections: requests refused by `throw_on_cudamalloc_oom`.
        max_split_size_bytes: the setting in force when the allocator was made; None: unlimited.
    """

    def __init__(self, max_split_size_bytes: int | None) -> None:
        self.all = Tally()
        self.small_pool = Tally()
        self.large_pool = Tally()
        self.oversize_allocations = Counter()
        self.oversize_segments = Counter()
        self.private_pools: dict[PoolId, PrivateReserve] = {}
        self.max_split_size_bytes = max_split_size_bytes
        self._reset_events()

    def _reset_events(self) -> None:
        self.num_alloc_retries = 0
        self.num_ooms = 0
        self.num_sync_all_streams = 0
        self.num_device_alloc = 0
        self.num_device_free = 0
        self.num_oom_rejections = 0

    def _counters(self) -> list[Counter]:
        tallies = (self.all, self.small_pool, self.large_pool)
        pooled = [counter for tally in tallies for counter in tally.counters().values()]
        private = [
            counter
            for reserve in self.private_pools.values()
            for counter in reserve.counters().values()
        ]
        return [*pooled, *private, self.oversize_allocations, self.oversize_segments]

    def reset_peaks(self) -> None:
        """Let every peak become what stands now, as torch.cuda.reset_peak_memory_stats does."""
        for counter in self._counters():
            counter.reset_peak()

    def reset_accumulated(self) -> None:
        """Count from zero, as torch.cuda.reset_accumulated_memory_stats does."""
        for counter in self._counters():
            counter.reset_accumulated()
        self._reset_events()

    def as_dict(self) -> dict[str, Any]:
        """Return the statistics as `torch._C._cuda_memoryStats(device)` does.

        Source: `THCPModule_memoryStats` in torch/csrc/cuda/Module.cpp, PyTorch 2.13. An unlimited
        `max_split_size` is -1 there: the largest unsigned number, read as a signed one.
        """
        tallies = {"all": self.all, "small_pool": self.small_pool, "large_pool": self.large_pool}
        pooled = {
            name: {pool: getattr(tally, name).as_dict() for pool, tally in tallies.items()}
            for name in POOLED
        }
        return {
            "num_alloc_retries": self.num_alloc_retries,
            "num_ooms": self.num_ooms,
            "max_split_size": -1
            if self.max_split_size_bytes is None
            else self.max_split_size_bytes,
            "num_sync_all_streams": self.num_sync_all_streams,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            "num_oom_rejections": self.num_oom_rejections,
            **pooled,
            "oversize_allocations": self.oversize_allocations.as_dict(),
            "oversize_segments": self.oversize_segments.as_dict(),
            "reserved_bytes_by_private_pools": {
                pool_id: {name: each.as_dict() for name, each in reserve.counters().items()}
                for pool_id, reserve in self.private_pools.items()
            },
        }
