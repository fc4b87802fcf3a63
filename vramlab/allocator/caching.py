"""PyTorch's CUDA caching allocator, one GPU's worth of it.

What it does when, and to which bytes, follows `DeviceCachingAllocator` in
c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13, step by step; the comments there say why it is so.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any, NoReturn

from vramlab.allocator import messages
from vramlab.allocator.blocks import Block, BlockPool, CachedBlock, Precedence, PrivatePool
from vramlab.allocator.device_memory import PAGE_BYTES, DeviceMemory
from vramlab.allocator.history import AllocatorEvent, History
from vramlab.allocator.private_pools import Accepts, PrivatePools, table_order
from vramlab.allocator.release import collect_garbage, release_all, release_oversize
from vramlab.allocator.reserve import Reserve
from vramlab.allocator.settings import AllocatorSettings
from vramlab.allocator.statistics import DEFAULT_POOL_ID, PoolId, Statistics
from vramlab.cuda_rules.sizes import (
    REFUSED_REQUEST_BYTES,
    SMALL_BLOCK_BYTES,
    round_request,
    segment_size,
    should_split,
)
from vramlab.errors import (
    AllocatorConfigError,
    AllocatorInvariantError,
    OutOfDeviceMemory,
    UnsupportedOnVirtualGPU,
)
from vramlab.units import MIB

OutOfMemoryObserver = Callable[[int, int, int, int], None]
"""Called with device, bytes asked of the driver, bytes allowed, bytes the driver has free."""

_UNLIMITED_BYTES = 1 << 64


class CachingAllocator:
    """Allocates blocks of one GPU's memory, and caches freed ones for the next request.

    No time passes on a virtual GPU: the work of a stream is done as soon as it is checked. The
    allocator looks when PyTorch's does, at the next `malloc` or when it empties its cache.

    Safe to use from several threads, and from finalizers: a block that is freed while the same
    thread is inside the allocator (because the garbage collector ran) is freed right after.

    Known limitations: no `backend:cudaMallocAsync`. `graph_capture_record_stream_reuse` has no
    effect: blocks that other streams used while a graph is captured wait for the end of it.

    Args:
        memory: the GPU's memory; several allocators (processes) may share it.
        settings: PYTORCH_CUDA_ALLOC_CONF, parsed.
        device: the GPU's number, for messages and snapshots.
        precedence: which of several free blocks of one size is taken, as `precedence_of` knows.
        pools_count_as_captures: while a private pool receives allocations, act as while a CUDA
            graph is captured, as PyTorch did up to 2.12.
        clock_us: where recorded events get their time from; default: they are numbered.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        settings: AllocatorSettings | None = None,
        device: int = 0,
        *,
        precedence: Precedence = Precedence.LOWEST_ADDRESS,
        pools_count_as_captures: bool = False,
        clock_us: Callable[[], int] | None = None,
    ) -> None:
        self.memory = memory
        self.device = device
        self._allowed_bytes: int | None = None
        self.settings = settings or AllocatorSettings()
        self.statistics = Statistics(self.settings.max_split_size_bytes)
        self.history = History(clock_us)
        self.small_pool = BlockPool(True, self.statistics.small_pool, precedence)
        self.large_pool = BlockPool(False, self.statistics.large_pool, precedence)
        self.private_pools = PrivatePools(
            lambda pool_id: PrivatePool(pool_id, self.statistics, precedence)
        )
        self._pools_count_as_captures = pools_count_as_captures
        self._captures = 0
        self.reserve = Reserve(memory, self.statistics, self.history)
        self.memory_fraction = self.settings.per_process_memory_fraction
        self._awaiting_free: list[Block] = []
        self._awaiting_capture: list[Block] = []
        self._oom_observers: list[OutOfMemoryObserver] = []
        self._lock = RLock()
        self._inside = False
        self._freed_inside: deque[tuple[Block, Any]] = deque()

    # What it holds and how it is set

    @property
    def settings(self) -> AllocatorSettings:
        """PYTORCH_CUDA_ALLOC_CONF. Set it at any time; it holds for what comes after."""
        return self._settings

    @settings.setter
    def settings(self, settings: AllocatorSettings) -> None:
        if settings.backend != "native":
            raise UnsupportedOnVirtualGPU(
                f"backend:{settings.backend} is an allocator of CUDA's own that is not modelled; "
                "leave the backend at native"
            )
        if settings.expandable_segments and settings.large_segment_bytes % PAGE_BYTES:
            raise AllocatorConfigError(
                f"expandable segments cannot have pages of {settings.large_segment_bytes // MIB} "
                "MiB: CUDA maps multiples of 2 MiB; set large_segment_size_mb to an even number"
            )
        self._settings = settings
        self._divisions = settings.active_roundup_divisions
        self._expandable = settings.expandable_segments
        # An eighth more than the GPU has leaves room to move pages to.
        self._expandable_bytes = self.memory.total_bytes * 9 // 8
        if settings.expandable_segments_reserve is not None:
            reserve = settings.expandable_segments_reserve
            if isinstance(reserve, float):
                reserve = int(min(reserve, 2) * self.memory.total_bytes)
            self._expandable_bytes = min(reserve, self._expandable_bytes)
        self._large_segment_bytes = settings.large_segment_bytes
        self._max_split_bytes = settings.max_split_size_bytes or _UNLIMITED_BYTES
        self._settle_garbage_collection()

    def _settle_garbage_collection(self) -> None:
        """Garbage is collected only with a threshold and a memory fraction below 1."""
        threshold = self._settings.garbage_collection_threshold
        self._collects_garbage = threshold > 0 and self._allowed_bytes is not None

    @property
    def memory_fraction(self) -> float:
        """torch.cuda.get_per_process_memory_fraction: the share of the GPU this may reserve."""
        if self._allowed_bytes is None:
            return 1.0
        return self._allowed_bytes / self.memory.total_bytes

    @memory_fraction.setter
    def memory_fraction(self, fraction: float) -> None:
        if not 0 <= fraction <= 1:
            raise ValueError(f"invalid fraction:{fraction}. Please set within [0, 1].")
        self._allowed_bytes = None if fraction == 1 else int(fraction * self.memory.total_bytes)
        self._settle_garbage_collection()

    @property
    def allowed_bytes(self) -> int | None:
        """Return what a memory fraction below 1 lets it reserve; None: no limit."""
        return self._allowed_bytes

    @property
    def allocated_bytes(self) -> int:
        """torch.cuda.memory_allocated: the blocks that the program holds."""
        return self.statistics.all.allocated_bytes.current

    @property
    def reserved_bytes(self) -> int:
        """torch.cuda.memory_reserved: what was taken from the driver."""
        return self.reserve.reserved_bytes

    def largest_free_bytes(self) -> int:
        """Return the largest size that may be available, as `cacheInfo` does for cuDNN.

        That is the driver's free memory, or a cached block if that is larger.
        """
        with self._lock:
            cached = [
                blocks[-1][0]
                for pool in (self.small_pool, self.large_pool)
                for blocks in pool.cached.values()
                if blocks
            ]
        return max(self.memory.free_bytes, *cached, 0)

    @property
    def awaiting_free(self) -> tuple[Block, ...]:
        """Blocks that were freed while another stream used them, and not looked at since."""
        return (*self._awaiting_free, *self._awaiting_capture)

    def block_pools(self) -> list[BlockPool]:
        """List the halves of the default pool and of all private ones."""
        return [self.large_pool, self.small_pool, *self.private_pools.block_pools()]

    def stats(self) -> dict[str, Any]:
        """Return the statistics as `torch._C._cuda_memoryStats(device)` does."""
        return self.statistics.as_dict()

    def reset_peak_stats(self) -> None:
        """Reset peaks, as torch.cuda.reset_peak_memory_stats does."""
        self.statistics.reset_peaks()

    def reset_accumulated_stats(self) -> None:
        """Reset sums and counts, as torch.cuda.reset_accumulated_memory_stats does."""
        self.statistics.reset_accumulated()

    def record_history(
        self,
        enabled: str | None = "all",
        context: str | None = "all",
        max_entries: int = sys.maxsize,
        clear_history: bool = False,
        skip_actions: Iterable[str] = (),
    ) -> None:
        """Record this GPU's history, as torch.cuda.memory._record_memory_history does."""
        self.history.configure(enabled, context, max_entries, clear_history, skip_actions)

    def add_trace_tracker(self, tracker: Callable[[AllocatorEvent], None]) -> None:
        """Call `tracker` with every event from now on, whether or not history is recorded."""
        self.history.add_tracker(tracker)

    def annotate(self, address: int, text: str, context: Any = None) -> None:
        """Record a text about the allocation at an address; nothing if none begins there."""
        for segment in self.reserve.segments.values():
            for block in segment.blocks():
                if block.address == address and block.allocated:
                    self.history.annotate(block, text, context)

    def add_oom_observer(self, observer: OutOfMemoryObserver) -> None:
        """Call an observer before each out-of-memory error is raised.

        As torch._C._cuda_attach_out_of_memory_observer does.
        """
        self._oom_observers.append(observer)

    # What a program does

    def malloc(self, size_bytes: int, stream: int = 0, context: Any = None) -> Block:
        """Allocate a block of at least `size_bytes` that `stream` may use immediately.

        Args:
            size_bytes: requested size, at least 1.
            stream: number of the CUDA stream; 0 is the default stream.
            context: stored on the block and shown in snapshots; the allocator does not read it.

        Returns:
            The block, whose size is rounded up as PyTorch does.

        Raises:
            OutOfDeviceMemory: releasing the whole cache does not free enough memory. Carries
                PyTorch's message; the allocator stays usable.
        """
        if not 0 < size_bytes < REFUSED_REQUEST_BYTES:
            self._refuse(size_bytes)
        self._lock.acquire()
        if self._inside:
            self._lock.release()
            raise _entered_twice(f"allocate {size_bytes} bytes")
        self._inside = True
        try:
            if (self._awaiting_free or self._awaiting_capture) and not self._is_capturing():
                self._process_events(context)
            block_bytes = round_request(size_bytes, self._divisions)
            is_small = block_bytes <= SMALL_BLOCK_BYTES
            pool = self.small_pool if is_small else self.large_pool
            if self.private_pools.routes:
                pool = self.private_pools.pool_for(is_small, stream) or pool
            block = self._best_fit(pool, block_bytes, stream)
            if block is None:
                block = self._obtain(pool, block_bytes, stream, size_bytes, context)
                pool = block.segment.pool
            return self._hand_out(block, pool, block_bytes, size_bytes, context)
        finally:
            self._inside = False
            self._lock.release()
            if self._freed_inside:
                self._free_late()

    def free(self, block: Block, context: Any = None) -> None:
        """Give a block back. It can be reused at once, unless other streams were recorded on it."""
        self._lock.acquire()
        if self._inside:
            self._freed_inside.append((block, context))
            self._lock.release()
            return
        self._inside = True
        try:
            self._free(block, context)
        finally:
            self._inside = False
            self._lock.release()
            if self._freed_inside:
                self._free_late()

    def record_stream(self, block: Block, stream: int) -> None:
        """Reuse the block only when `stream` is done with it: torch.Tensor.record_stream."""
        with self._lock:
            if not block.allocated:
                raise ValueError(f"cannot record a stream on {block!r}: it is not allocated")
            if stream == block.segment.stream:
                return
            if block.stream_uses is None:
                block.stream_uses = {}
            captured = block.stream_uses.get(stream, False) or self._is_capturing()
            block.stream_uses[stream] = captured

    def synchronize(self, context: Any = None) -> None:
        """Look at what the streams have done: blocks that waited for one become free.

        PyTorch's allocator does so only inside `malloc` and `empty_cache`;
        torch.cuda.synchronize() waits for the GPU, but leaves the allocator's books alone.
        """
        with self._exclusive():
            self._process_events(context)

    def empty_cache(self, context: Any = None, pool_id: PoolId = DEFAULT_POOL_ID) -> None:
        """Free every segment and page that nothing uses: torch.cuda.empty_cache.

        Those of private pools stay as long as a graph or a memory pool uses the pool. While a graph
        is captured, those of the default pool stay, too.

        Args:
            context: as of `malloc`.
            pool_id: free only those of this private pool.
        """
        with self._exclusive():
            self._release_cached_blocks(context, pool_id)

    # What CUDA graphs and memory pools do

    def create_or_retain_pool(self, pool_id: PoolId) -> None:
        """Make a private pool, or count one user more of it (`createOrIncrefPool`)."""
        with self._lock:
            self.private_pools.create_or_retain(pool_id)

    def release_pool(self, pool_id: PoolId) -> None:
        """Count one user less of a private pool (`releasePool`)."""
        with self._lock:
            self.private_pools.release(pool_id)

    def pool_use_count(self, pool_id: PoolId) -> int:
        """Return how many users a private pool has (`getPoolUseCount`)."""
        with self._lock:
            return self.private_pools.find(pool_id).use_count

    def set_use_on_oom(self, pool_id: PoolId, use_on_oom: bool) -> None:
        """Serve other requests from a private pool before running out (`setUseOnOOM`), or not."""
        with self._lock:
            if use_on_oom:
                self.private_pools.used_on_oom.add(pool_id)
            else:
                self.private_pools.used_on_oom.discard(pool_id)

    def set_no_split(self, pool_id: PoolId) -> None:
        """Keep the blocks of a private pool whole (`setNoSplit`)."""
        with self._lock:
            self.private_pools.set_no_split(pool_id)

    def begin_allocate_to_pool(self, pool_id: PoolId, accepts: Accepts) -> None:
        """Serve allocations from a private pool, which gets a user (`beginAllocateToPool`).

        Args:
            pool_id: the pool; it is made if it does not exist.
            accepts: called with the stream of each allocation; whether it is one of these.
        """
        with self._lock:
            self.private_pools.begin(pool_id, accepts)

    def end_allocate_to_pool(self, pool_id: PoolId) -> None:
        """Serve no more allocations from a private pool; its user stays (`endAllocateToPool`)."""
        with self._lock:
            self.private_pools.end(pool_id)

    def begin_capture(self) -> None:
        """Note that a CUDA graph is captured: streams cannot be asked until `end_capture`."""
        with self._lock:
            self._captures += 1

    def end_capture(self) -> None:
        """Note that the capture of a CUDA graph has ended."""
        with self._lock:
            self._captures -= 1

    def _is_capturing(self) -> bool:
        """Return whether streams cannot be asked, so that nothing may wait for them."""
        if self._captures:
            return True
        return self._pools_count_as_captures and bool(self.private_pools.routes)

    @contextmanager
    def _exclusive(self) -> Iterator[None]:
        """Hold off other threads, and the frees of finalizers. `malloc` and `free` spell it out."""
        try:
            with self._lock:
                if self._inside:
                    raise _entered_twice("empty the cache or synchronize")
                self._inside = True
                try:
                    yield
                finally:
                    self._inside = False
        finally:
            if not self._inside:
                self._free_late()

    # Taking blocks

    def _refuse(self, size_bytes: int) -> NoReturn:
        if size_bytes <= 0:
            raise ValueError(
                f"cannot allocate {size_bytes} bytes; PyTorch asks its allocator for nothing when "
                "a tensor is empty"
            )
        raise OutOfDeviceMemory(
            messages.TOO_LARGE_TO_LOOK_FOR, requested_bytes=size_bytes, segment_bytes=size_bytes
        )

    def _best_fit(
        self, pool: BlockPool, block_bytes: int, stream: int, *, skip_expandable: bool = False
    ) -> Block | None:
        """Return the smallest cached block of the stream that is large enough, out of the cache.

        It is a miss, with no further search, when that block may not be split for this request.
        """
        if self._collects_garbage:
            pool.searches += 1
        cached = pool.cached[stream]
        index = bisect_left(cached, (block_bytes,))
        if index == len(cached):
            return None
        block = cached[index][-1]
        if block.segment.expandable:
            index = self._best_expandable(cached, index, skip_expandable)
            if index == len(cached):
                return None
            block = cached[index][-1]
        if block_bytes < self._max_split_bytes:
            if block.size_bytes >= self._max_split_bytes:
                return None
        elif block.size_bytes >= block_bytes + self._settings.max_non_split_rounding_bytes:
            return None
        del cached[index]
        block.free = False
        return block

    def _best_expandable(self, cached: list[CachedBlock], index: int, skip: bool) -> int:
        """Find the block to take when the best fit lies in an expandable segment.

        Such a block counts as large as it could grow. With the setting turned off since, blocks of
        expandable segments are passed over.
        """
        if skip or not self._expandable:
            while index < len(cached) and cached[index][-1].segment.expandable:
                index += 1
            return index
        while (
            cached[index][-1].segment.expandable
            and index + 1 < len(cached)
            and _growable_bytes(cached[index + 1][-1]) < _growable_bytes(cached[index][-1])
        ):
            index += 1
        return index

    def _hand_out(
        self, block: Block, pool: BlockPool, block_bytes: int, requested_bytes: int, context: Any
    ) -> Block:
        """Split off what the request does not need, and count what is handed out as allocated."""
        total = self.statistics.all
        tally = pool.tally
        segment = block.segment
        was_split = block.previous is not None or block.next is not None
        if (pool.owner is None or pool.owner.splits) and should_split(
            block.size_bytes, block_bytes, self._max_split_bytes, expandable=self._expandable
        ):
            remaining = block
            block = Block(remaining.address, block_bytes, segment)
            block.put_between(remaining.previous, remaining)
            remaining.address += block_bytes
            remaining.size_bytes -= block_bytes
            pool.add(remaining)
            if not segment.expandable:
                if was_split:
                    total.inactive_split_changed(0, -block_bytes)
                    tally.inactive_split_changed(0, -block_bytes)
                else:
                    total.inactive_split_changed(1, remaining.size_bytes)
                    tally.inactive_split_changed(1, remaining.size_bytes)
        elif was_split and not segment.expandable:
            total.inactive_split_changed(-1, -block.size_bytes)
            tally.inactive_split_changed(-1, -block.size_bytes)
        block.allocated = True
        block.requested_bytes = requested_bytes
        block.context = context
        if self.history.active:
            self.history.record(
                "alloc", block.address, requested_bytes, segment.stream, context, pool.id
            )
        total.block_taken(block.size_bytes, requested_bytes)
        tally.block_taken(block.size_bytes, requested_bytes)
        if block.size_bytes >= self._max_split_bytes:
            self.statistics.oversize_allocations.increase(1)
        return block

    # Giving blocks back

    def _free(self, block: Block, context: Any) -> None:
        if not block.allocated:
            raise ValueError(f"cannot free {block!r}: it is not allocated")
        block.allocated = False
        size_bytes = block.size_bytes
        segment = block.segment
        total = self.statistics.all
        tally = segment.pool.tally
        if self.history.active:
            self.history.record(
                "free_requested",
                block.address,
                block.requested_bytes,
                segment.stream,
                context or block.context,
                segment.pool.id,
            )
        if size_bytes >= self._max_split_bytes:
            self.statistics.oversize_allocations.decrease(1)
        if block.stream_uses:
            total.free_requested(size_bytes)
            tally.free_requested(size_bytes)
            waiting = self._awaiting_capture if self._is_capturing() else self._awaiting_free
            waiting.append(block)
        else:
            total.block_freed(size_bytes, block.requested_bytes)
            tally.block_freed(size_bytes, block.requested_bytes)
            self._cache(block, context)

    def _free_late(self) -> None:
        """Free blocks that finalizers released while the allocator was busy."""
        while self._freed_inside:
            try:
                block, context = self._freed_inside.popleft()
            except IndexError:  # another thread was quicker
                return
            self.free(block, context)

    def _process_events(self, context: Any, only: PrivatePool | None = None) -> None:
        """Every stream is done: cache the blocks that waited for one.

        Of blocks that waited for the end of a capture, streams that the captured work used are
        done with it, so those that no other stream used come first.

        Args:
            only: a private pool; other blocks go on waiting.
        """
        deferred, self._awaiting_capture = self._awaiting_capture, []
        for block in deferred:
            if block.stream_uses is None or all(block.stream_uses.values()):
                self._complete(block, context)
            else:
                self._awaiting_free.append(block)
        finished, self._awaiting_free = self._awaiting_free, []
        for block in finished:
            if only is None or block.segment.pool.owner is only:
                self._complete(block, context)
            else:
                self._awaiting_free.append(block)

    def _complete(self, block: Block, context: Any) -> None:
        """Cache a block that no stream uses any more."""
        block.stream_uses = None
        for tally in (self.statistics.all, block.segment.pool.tally):
            tally.free_completed(block.size_bytes, block.requested_bytes)
        self._cache(block, context)

    def _cache(self, block: Block, context: Any) -> None:
        """Put an unused block into its pool, merged with its free neighbours."""
        segment = block.segment
        pool = segment.pool
        if self.history.active:
            self.history.record(
                "free_completed",
                block.address,
                block.requested_bytes,
                segment.stream,
                context or block.context,
                pool.id,
            )
        block.context = None
        pieces = 0
        pieces_bytes = 0
        for neighbour in (block.previous, block.next):
            if neighbour is not None and neighbour.free and neighbour.mapped:
                pieces -= 1
                pieces_bytes -= pool.absorb(block, neighbour)
        pool.add(block)
        if block.previous is not None or block.next is not None:
            pieces += 1
            pieces_bytes += block.size_bytes
        if not segment.expandable:
            self.statistics.all.inactive_split_changed(pieces, pieces_bytes)
            pool.tally.inactive_split_changed(pieces, pieces_bytes)

    # When the cache has nothing that fits

    def _obtain(
        self, pool: BlockPool, block_bytes: int, stream: int, requested_bytes: int, context: Any
    ) -> Block:
        """Get a block from the driver; when it has nothing left, after giving back the cache.

        Before that, from a memory pool that is used on out-of-memory.
        """
        if self._collects_garbage:
            self._collect_garbage(context)
        block = self._from_driver(pool, block_bytes, stream, requested_bytes, context)
        if block is None:
            block = self._from_other_pool(pool, block_bytes, stream)
        if block is None and self._release_oversize(pool, block_bytes, stream, context):
            block = self._from_driver(pool, block_bytes, stream, requested_bytes, context)
        if block is None and not self._is_capturing():
            self._release_cached_blocks(context)
            self.statistics.num_alloc_retries += 1
            block = self._from_driver(pool, block_bytes, stream, requested_bytes, context)
        if block is None:
            self._run_out(pool, block_bytes, stream, requested_bytes, context)
        return block

    def _from_other_pool(self, pool: BlockPool, block_bytes: int, stream: int) -> Block | None:
        """Find a cached block in a memory pool that is used on out-of-memory.

        Source: `try_mempool_fallback`, which finds no blocks of expandable segments.
        """
        if pool.owner is None:
            for pool_id in table_order(self.private_pools.used_on_oom):
                other = self.private_pools.find(pool_id)
                half = other.small if pool.is_small else other.large
                block = self._best_fit(half, block_bytes, stream, skip_expandable=True)
                if block is not None:
                    return block
        return None

    def _from_driver(
        self, pool: BlockPool, block_bytes: int, stream: int, requested_bytes: int, context: Any
    ) -> Block | None:
        """Return a new segment, or more pages of an expandable one; None if there is no room."""
        size_bytes = segment_size(block_bytes, self._large_segment_bytes)
        allowed_bytes = self._allowed_bytes
        if allowed_bytes is not None and self.reserved_bytes + size_bytes > allowed_bytes:
            if self._settings.throw_on_cudamalloc_oom:
                self.statistics.num_oom_rejections += 1
                raise self._out_of_memory(size_bytes, requested_bytes)
            return None
        if self._expandable:
            return self.reserve.expand(
                pool,
                stream,
                block_bytes,
                self._expandable_bytes,
                self._large_segment_bytes,
                context,
            )
        block = self.reserve.add_segment(pool, stream, size_bytes, context)
        if block is not None and size_bytes >= self._max_split_bytes:
            self.statistics.oversize_segments.increase(1)
        return block

    def _release(self, block: Block, context: Any) -> None:
        if block.size_bytes >= self._max_split_bytes:
            self.statistics.oversize_segments.decrease(1)
        self.reserve.release_segment(block, context)

    def _collect_garbage(self, context: Any) -> None:
        """Free old blocks of the large pool, down to the threshold's fraction of the limit."""
        assert self._allowed_bytes is not None
        threshold_bytes = int(self._settings.garbage_collection_threshold * self._allowed_bytes)
        collect_garbage(
            self.large_pool,
            self.reserved_bytes - threshold_bytes,
            lambda block: self._release(block, context),
        )

    def _release_oversize(
        self, pool: BlockPool, block_bytes: int, stream: int, context: Any
    ) -> bool:
        """With a limit on splitting, free blocks beyond it. Return whether that may have helped."""
        if self._settings.max_split_size_bytes is None:
            return False
        return release_oversize(
            pool,
            stream,
            max(block_bytes, self._max_split_bytes),
            self._max_split_bytes,
            lambda block: self._release(block, context),
        )

    def _release_cached_blocks(self, context: Any, pool_id: PoolId = DEFAULT_POOL_ID) -> None:
        """Free every unused segment, after waiting for every stream.

        Of private pools, only of those without users.
        """
        if pool_id == DEFAULT_POOL_ID and not self._is_capturing():
            self._wait_for_streams(context)
            self._release_all(self.large_pool, context)
            self._release_all(self.small_pool, context)
        for each in table_order(self.private_pools.freeable):
            pool = self.private_pools.freeable[each]
            if pool_id != DEFAULT_POOL_ID:
                if each != pool_id:
                    continue
                self._wait_for_streams(context, pool)
            self._release_all(pool.small, context)
            self._release_all(pool.large, context)
            if pool.device_allocs == 0:
                self.private_pools.forget(each)

    def _wait_for_streams(self, context: Any, only: PrivatePool | None = None) -> None:
        self.statistics.num_sync_all_streams += 1
        self._process_events(context, only)

    def _release_all(self, pool: BlockPool, context: Any) -> None:
        release_all(
            pool,
            lambda block: self._release(block, context),
            lambda block: self.reserve.unmap(block, context),
        )

    def _run_out(
        self,
        pool: BlockPool,
        block_bytes: int,
        stream: int,
        requested_bytes: int,
        context: Any,
    ) -> NoReturn:
        free_bytes = self.memory.free_bytes
        size_bytes = segment_size(block_bytes, self._large_segment_bytes)
        if self.history.active:
            self.history.record("oom", free_bytes, block_bytes, stream, context, pool.id)
        self.statistics.num_ooms += 1
        allowed_bytes = self._allowed_bytes
        limit_bytes = self.memory.total_bytes if allowed_bytes is None else allowed_bytes
        for observer in self._oom_observers:
            observer(self.device, size_bytes, limit_bytes, free_bytes)
        raise self._out_of_memory(size_bytes, requested_bytes)

    def _out_of_memory(self, size_bytes: int, requested_bytes: int) -> OutOfDeviceMemory:
        message = messages.out_of_memory(
            device=self.device,
            memory=self.memory,
            segment_bytes=size_bytes,
            allowed_bytes=self._allowed_bytes,
            allocated_bytes=self.allocated_bytes,
            reserved_bytes=self.reserved_bytes,
            private_free_bytes=self.private_pools.free_bytes(),
            segment_reserve_bytes=self._expandable_bytes if self._expandable else None,
        )
        return OutOfDeviceMemory(message, requested_bytes=requested_bytes, segment_bytes=size_bytes)


def _entered_twice(purpose: str) -> AllocatorInvariantError:
    return AllocatorInvariantError(
        f"a finalizer, tracker or observer that ran inside the allocator tried to {purpose}; "
        "there it may free memory, but nothing else"
    )


def _growable_bytes(block: Block) -> int:
    """Size a block of an expandable segment as large as mapping what follows could make it."""
    after = block.next
    return block.size_bytes + (after.size_bytes if after is not None and not after.mapped else 0)
