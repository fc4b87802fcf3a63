"""Whatever a program does, in whatever order: the books balance after every step.

Hypothesis invents programs of allocations, frees, stream uses and settings, and shortens those that
break a rule. It looks for them from a fixed start, so that a run is repeatable.
"""

from __future__ import annotations

from itertools import pairwise

from allocator_invariants import check
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from vramlab.allocator import Block, CachingAllocator, DeviceMemory, segments, snapshot
from vramlab.errors import OutOfDeviceMemory
from vramlab.units import KIB, MIB

TOTAL_BYTES = 600 * MIB

EDGES = [512, MIB, 2 * MIB, 10 * MIB, 19 * MIB, 20 * MIB, 40 * MIB, 100 * MIB]
SIZES = st.one_of(
    st.integers(1, 4 * KIB),
    st.integers(1, 3 * MIB),
    st.integers(1, 60 * MIB),
    st.builds(int.__add__, st.sampled_from(EDGES), st.integers(-511, 513)),
)
STREAMS = st.integers(0, 2)
PICKS = st.integers(0, 999)
FRACTIONS = st.sampled_from([1.0, 0.5, 0.9])

OPTIONS = [
    "",
    "max_split_size_mb:40",
    "max_split_size_mb:64,max_non_split_rounding_mb:36",
    "garbage_collection_threshold:0.3",
    "roundup_power2_divisions:4",
    "expandable_segments:True",
    "expandable_segments:False",
    "large_segment_size_mb:12",
    "large_segment_size_mb:32",
    "throw_on_cudamalloc_oom:True",
]


class Program(RuleBasedStateMachine):
    """A program and the GPU it runs on."""

    def __init__(self) -> None:
        super().__init__()
        self.allocator = CachingAllocator(DeviceMemory(TOTAL_BYTES))
        self.held: list[Block] = []

    @initialize(text=st.sampled_from(OPTIONS), fraction=FRACTIONS)
    def start_with(self, text: str, fraction: float) -> None:
        self.set_options(text)
        self.set_memory_fraction(fraction)

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=6), stream=STREAMS)
    def allocate(self, sizes: list[int], stream: int) -> None:
        for size_bytes in sizes:
            self.allocate_one(size_bytes, stream)

    @rule(size_bytes=st.sampled_from(EDGES), times=st.integers(1, 8))
    def fill(self, size_bytes: int, times: int) -> None:
        for _ in range(times):
            self.allocate_one(size_bytes, 0)

    def allocate_one(self, size_bytes: int, stream: int) -> None:
        try:
            block = self.allocator.malloc(size_bytes, stream)
        except OutOfDeviceMemory as error:
            self.error_is_justified(error)
            return
        assert block.allocated
        assert block.stream == stream
        assert block.size_bytes >= block.requested_bytes == size_bytes
        self.held.append(block)

    def error_is_justified(self, error: OutOfDeviceMemory) -> None:
        """What was asked of the driver is more than it has, or more than is allowed."""
        room_bytes = self.allocator.memory.free_bytes
        if self.allocator.allowed_bytes is not None:
            allowed_more_bytes = self.allocator.allowed_bytes - self.allocator.reserved_bytes
            room_bytes = min(room_bytes, allowed_more_bytes)
        if self.allocator.settings.expandable_segments:  # it counts in pages, and keeps some
            room_bytes -= 2 * self.allocator.settings.large_segment_bytes
        assert error.segment_bytes > room_bytes

    @precondition(lambda self: self.held)
    @rule(pick=PICKS)
    def free(self, pick: int) -> None:
        before_bytes = self.allocator.allocated_bytes
        block = self.held.pop(pick % len(self.held))
        size_bytes = block.size_bytes
        self.allocator.free(block)
        assert self.allocator.allocated_bytes == before_bytes - size_bytes

    @precondition(lambda self: self.held)
    @rule(step=st.integers(1, 4))
    def free_every_so_many(self, step: int) -> None:
        for block in self.held[::step]:
            self.allocator.free(block)
        del self.held[::step]

    @precondition(lambda self: self.held)
    @rule(pick=PICKS, stream=STREAMS)
    def record_stream(self, pick: int, stream: int) -> None:
        self.allocator.record_stream(self.held[pick % len(self.held)], stream)

    @rule()
    def synchronize(self) -> None:
        self.allocator.synchronize()
        assert not self.allocator.awaiting_free

    @rule()
    def empty_cache(self) -> None:
        self.allocator.empty_cache()
        for segment in segments(self.allocator):
            if not segment["is_expandable"]:
                assert segment["allocated_size"] > 0

    @rule(text=st.sampled_from(OPTIONS))
    def set_options(self, text: str) -> None:
        self.allocator.settings = self.allocator.settings.updated(text)

    @rule(fraction=FRACTIONS)
    def set_memory_fraction(self, fraction: float) -> None:
        self.allocator.memory_fraction = fraction

    @rule(megabytes=st.sampled_from([0, 50]))
    def share_the_gpu(self, megabytes: int) -> None:
        if megabytes * MIB <= self.allocator.memory.free_bytes:
            self.allocator.memory.used_by_others_bytes = megabytes * MIB

    @rule()
    def reset_statistics(self) -> None:
        self.allocator.reset_peak_stats()
        self.allocator.reset_accumulated_stats()

    @invariant()
    def the_books_balance(self) -> None:
        check(self.allocator)

    @invariant()
    def the_program_holds_what_it_was_given(self) -> None:
        allocator = self.allocator
        assert allocator.allocated_bytes == sum(block.size_bytes for block in self.held)
        ranges = sorted((block.address, block.address + block.size_bytes) for block in self.held)
        assert all(end <= start for (_, end), (start, _) in pairwise(ranges))
        memory = allocator.memory
        assert (
            memory.used_by_others_bytes + memory.free_bytes + memory.used_by_process_bytes
            == TOTAL_BYTES
        )

    @invariant()
    def the_snapshot_agrees(self) -> None:
        segments = snapshot([self.allocator])["segments"]
        assert sum(s["total_size"] for s in segments) == self.allocator.reserved_bytes
        assert sum(s["allocated_size"] for s in segments) == self.allocator.allocated_bytes

    def teardown(self) -> None:
        for block in self.held:
            self.allocator.free(block)
        self.allocator.empty_cache()
        check(self.allocator)
        assert self.allocator.allocated_bytes == self.allocator.reserved_bytes == 0
        assert self.allocator.memory.used_by_process_bytes == 0
        current = {
            (name, pool): numbers["current"]
            for name, pools in self.allocator.stats().items()
            if isinstance(pools, dict)
            for pool, numbers in pools.items()
            if isinstance(numbers, dict)
        }
        assert not any(current.values())


TestProgram = Program.TestCase
TestProgram.settings = settings(
    max_examples=150, stateful_step_count=30, deadline=None, derandomize=True, database=None
)
