"""Traces that begin in the middle, replayed from the layout at their beginning."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import example, given, settings
from hypothesis import strategies as st

from vramlab.allocator import (
    AllocatorSettings,
    CachingAllocator,
    DeviceMemory,
    precedence_of,
    snapshot,
)
from vramlab.errors import OutOfDeviceMemory
from vramlab.explaining.traces import read_gpus
from vramlab.explaining.whatif import Replay
from vramlab.units import GIB, KIB, MIB

CONFIGURATIONS = (
    "",
    "max_split_size_mb:32",
    "roundup_power2_divisions:4",
    "expandable_segments:True",
)
SIZES = st.one_of(
    st.integers(1, 4 * KIB), st.integers(500 * KIB, 3 * MIB), st.integers(4 * MIB, 90 * MIB)
)
STEPS = st.one_of(
    st.tuples(st.just("malloc"), SIZES, st.integers(0, 1)),
    st.tuples(st.just("malloc in a pool"), SIZES, st.just(0)),
    st.tuples(st.just("free"), st.integers(0, 10**6), st.just(0)),
    st.tuples(st.just("free, used elsewhere"), st.integers(0, 10**6), st.just(0)),
    st.tuples(st.just("empty cache"), st.just(0), st.just(0)),
)
POOL = (0, 1)
PROGRAMS = st.lists(STEPS, min_size=5, max_size=60)


def run(allocator: CachingAllocator, program: list[tuple[str, int, int]]) -> None:
    """Run a program, which may run out of memory."""
    live = []
    for step, number, stream in program:
        if step == "malloc":
            live.append(allocator.malloc(number, stream))
        elif step == "malloc in a pool":
            allocator.begin_allocate_to_pool(POOL, lambda _: True)
            live.append(allocator.malloc(number))
            allocator.end_allocate_to_pool(POOL)
        elif step == "empty cache":
            allocator.empty_cache(context=[{"name": "empty_cache", "filename": "x.py", "line": 1}])
        elif live:
            block = live.pop(number % len(live))
            if step == "free, used elsewhere":
                allocator.record_stream(block, 2)
            allocator.free(block)


BETWEEN_SEGMENT_AND_ITS_BLOCK = [("malloc in a pool", 1, 0), ("malloc", 31 << 20, 0)]


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(CONFIGURATIONS), st.sampled_from([(2, 11), (2, 13)]), PROGRAMS, st.floats(0, 1)
)
@example("max_split_size_mb:32", (2, 11), BETWEEN_SEGMENT_AND_ITS_BLOCK, 0.75)
def test_a_replay_from_the_middle_reserves_what_the_program_did(
    configuration: str,
    version: tuple[int, int],
    program: list[tuple[str, int, int]],
    where: float,
) -> None:
    allocator = CachingAllocator(
        DeviceMemory(GIB),
        AllocatorSettings.parse(configuration),
        precedence=precedence_of(version),
    )
    allocator.record_history()
    with suppress(OutOfDeviceMemory):
        run(allocator, program)
    shown = snapshot([allocator])
    events = shown["device_traces"][0]
    shown["device_traces"][0] = events[int(where * len(events)) :]
    if version < (2, 12):
        for event in events:
            del event["pool_id"]
    for gpu in read_gpus(shown):
        if any(life.born >= 0 for life in gpu.lives):
            assert Replay(gpu).is_as_recorded(gpu.capacity_bytes)
