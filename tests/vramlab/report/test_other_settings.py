"""A run's requests under other allocator settings: the own ones repeat the run to the byte."""

from __future__ import annotations

import pytest

from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory, Precedence
from vramlab.errors import OutOfDeviceMemory
from vramlab.report.evidence.other_settings import (
    SETTINGS,
    RequestTape,
    Trial,
    settings_table,
    try_settings,
)
from vramlab.units import MIB

PRECEDENCE = Precedence.LOWEST_ADDRESS


class Run:
    """A GPU of some memory, 4 MiB of it for the context, whose requests are taped."""

    def __init__(self, total_bytes: int, settings: str = "") -> None:
        memory = DeviceMemory(total_bytes)
        memory.context_bytes = 4 * MIB
        self.allocator = CachingAllocator(
            memory, AllocatorSettings.parse(settings), precedence=PRECEDENCE
        )
        self.tape = RequestTape(self.allocator)

    def trials(self) -> list[Trial] | str:
        peak_bytes = self.allocator.stats()["reserved_bytes"]["all"]["peak"]
        return try_settings(self.tape, self.allocator, peak_bytes, PRECEDENCE)


def growing(run: Run) -> None:
    """Twice the memory each time, as when sequences grow: no cached block fits the next one."""
    for size_bytes in (20 * MIB, 40 * MIB, 80 * MIB):
        run.allocator.free(run.allocator.malloc(size_bytes))


def test_growing_requests_need_what_segments_that_grow_would_not() -> None:
    run = Run(400 * MIB)
    growing(run)
    trials = run.trials()
    assert isinstance(trials, list)
    assert [trial.settings for trial in trials] == list(SETTINGS)
    own, expandable = trials[:2]
    # 20 + 40 + 80; where memory runs out, the cache is freed: the last one and the context.
    assert own == Trial("", True, 140 * MIB, 84 * MIB, True)
    assert expandable == Trial("expandable_segments:True", False, 80 * MIB, 84 * MIB, True)


def test_the_own_settings_come_first() -> None:
    run = Run(400 * MIB, "expandable_segments:True")
    growing(run)
    trials = run.trials()
    assert isinstance(trials, list)
    assert [trial.settings for trial in trials] == [SETTINGS[1], SETTINGS[0], *SETTINGS[2:]]
    assert [trial.is_own for trial in trials] == [True, *[False] * 5]


def test_the_request_that_failed_is_tried_again() -> None:
    run = Run(104 * MIB)  # 100 without the context
    keep = [run.allocator.malloc(20 * MIB) for _ in range(5)]
    for block in keep[1::2]:
        run.allocator.free(block)  # 2 x 20 MiB, which are freed, and leave room for 40
    run.allocator.malloc(40 * MIB)
    with pytest.raises(OutOfDeviceMemory):
        run.allocator.malloc(20 * MIB)
    assert (run.tape.count, run.tape.failed_bytes) == (6, 20 * MIB)
    trials = run.trials()
    assert isinstance(trials, list)
    # Without a limit 5 x 20 + 40: the last 20 go where one of the two lay. With one, what lives at
    # the end has to fit: 3 x 20 + 40 + 20, and the context.
    assert trials[0] == Trial("", True, 140 * MIB, 124 * MIB, False)
    table = str(settings_table(0, run.tape, trials, "T4"))
    assert table.startswith(
        "cuda:0: the run's 6 allocations under other settings, up to the failed one\n"
    )
    assert table.splitlines()[3].split() == [
        "(defaults),", "this", "run", "140.00", "MiB", "124.00", "MiB", "out", "of", "memory",
    ]  # fmt: skip


def test_a_run_that_empties_its_cache_is_not_replayed() -> None:
    run = Run(400 * MIB)
    run.allocator.free(run.allocator.malloc(20 * MIB))
    run.allocator.empty_cache()
    run.allocator.malloc(40 * MIB)
    said = run.trials()
    # In the run 40 MiB at most; without empty_cache 20 + 40.
    assert isinstance(said, str)
    assert "reserves 60.00 MiB, but the run reserved 40.00 MiB" in said


def test_private_pools_are_replayed_as_such() -> None:
    run = Run(400 * MIB)
    pool = (0, 1)
    run.allocator.malloc(MIB)
    run.allocator.begin_allocate_to_pool(pool, lambda stream: True)
    run.allocator.malloc(MIB)
    run.allocator.end_allocate_to_pool(pool)
    trials = run.trials()
    assert not isinstance(trials, str), trials
    # Up to 1 MiB gets a segment of 2 MiB, in its own pool: in one pool both would share it.
    assert trials[0].reserved_bytes == 2 * 2 * MIB
