"""Timelines rebuilt from hand-made snapshots."""

from __future__ import annotations

import pytest
from trace_records import (
    LARGE,
    SMALL,
    alloc,
    block,
    event,
    free,
    live,
    segment,
    snapshots,
    training_step,
)

from vramlab.measure import IncompleteTraceError, TimelineStage, timeline_from_snapshots
from vramlab.units import MIB


def test_allocated_bytes_rise_at_alloc_and_fall_at_free_requested() -> None:
    timeline = timeline_from_snapshots(*training_step())
    in_mib = [size_bytes // MIB for size_bytes in timeline.allocated_bytes]
    #                 start +8  +3  -3  completed +4  -8  completed
    assert in_mib == [4, 12, 15, 12, 12, 16, 8, 8]
    assert timeline.event_count == 7
    assert set(timeline.reserved_bytes) == {20 * MIB}


def test_peak_names_the_blocks_that_live_then() -> None:
    timeline = timeline_from_snapshots(*training_step(), measured_peak_bytes=16 * MIB)
    moment = timeline.peak()
    assert moment.position == 5
    assert [live_block.size_bytes // MIB for live_block in moment.blocks] == [8, 4, 4]
    assert moment.allocated_bytes == 16 * MIB
    assert moment.cached_bytes == 4 * MIB  # 20 reserved
    assert timeline.unexplained_bytes == 0


def test_what_a_stage_has_left_is_what_nobody_gave_back() -> None:
    first, last = training_step()
    timeline = timeline_from_snapshots(first, last, marks=[("one", 0), ("two", 3), (None, 5)])
    # Of +8 +3 -3 | +4 -8, the second stage's block is there at the end, and none of the first.
    assert [block.size_bytes // MIB for block in timeline.left_by("two").blocks] == [4]
    assert timeline.left_by("one").allocated_bytes == 0
    with pytest.raises(ValueError, match=r"no stage 'three'; there are: \['one', 'two'\]"):
        timeline.left_by("three")


def test_unexplained_bytes_are_what_torch_counted_more() -> None:
    first, last = training_step()
    timeline = timeline_from_snapshots(first, last, measured_peak_bytes=16 * MIB + 512)
    assert timeline.unexplained_bytes == 512
    assert timeline_from_snapshots(first, last).unexplained_bytes is None


def test_rounding_and_remainders_are_kept_apart() -> None:
    # 3 MiB + 100 B asked of a free block of 4 MiB: rounded up by 412 B to 3 MiB + 512 B; the rest
    # of 1 MiB - 512 B is not worth splitting off.
    timeline = timeline_from_snapshots(
        *snapshots([segment(LARGE, block(4 * MIB))], [alloc(LARGE, 3 * MIB + 100)])
    )
    moment = timeline.peak()
    assert moment.requested_bytes == 3 * MIB + 100
    assert moment.rounding_bytes == 412
    assert moment.remainder_bytes == 1 * MIB - 512
    assert moment.allocated_bytes == 4 * MIB


def test_blocks_of_the_first_snapshot_count_with_their_true_size() -> None:
    # 1.5 MiB asked for, and the block is 2 MiB: 0.5 MiB was not split off, long ago
    timeline = timeline_from_snapshots(
        *snapshots([segment(LARGE, live(2 * MIB, 3 * MIB // 2), block(18 * MIB))], free(LARGE))
    )
    (old,) = timeline.blocks
    assert (old.born, old.freed, old.size_bytes) == (-1, 0, 2 * MIB)
    assert old.remainder_bytes == MIB // 2
    assert timeline.allocated_bytes == (2 * MIB, 0, 0)


def test_a_block_that_another_stream_still_uses_is_no_longer_allocated() -> None:
    waiting = block(2 * MIB, "active_awaiting_free", 2 * MIB)
    timeline = timeline_from_snapshots(
        *snapshots([segment(LARGE, waiting)], [event("free_completed", LARGE, 2 * MIB)])
    )
    assert timeline.allocated_bytes == (0, 0)
    assert timeline.blocks == ()


def test_reserved_bytes_follow_segments_and_pages() -> None:
    timeline = timeline_from_snapshots(
        *snapshots(
            [segment(SMALL, block(2 * MIB))],
            [
                event("segment_alloc", LARGE, 20 * MIB),
                event("segment_free", SMALL, 2 * MIB),
                event("segment_map", LARGE + 40 * MIB, 20 * MIB),
                event("segment_unmap", LARGE + 40 * MIB, 20 * MIB),
            ],
        )
    )
    assert [size_bytes // MIB for size_bytes in timeline.reserved_bytes] == [2, 22, 20, 40, 20]


def test_a_freed_place_can_be_taken_again() -> None:
    timeline = timeline_from_snapshots(
        *snapshots(
            [segment(SMALL, block(2 * MIB))],
            [alloc(SMALL, 512), *free(SMALL), alloc(SMALL, 1024), *free(SMALL)],
        )
    )
    assert [(b.size_bytes, b.born, b.freed) for b in timeline.blocks] == [
        (512, 0, 1),
        (1024, 3, 4),
    ]


def test_stages_are_told_by_counts_of_allocations_and_frees() -> None:
    timeline = timeline_from_snapshots(
        *training_step(), marks=[("forward", 0), ("backward", 3), (None, 5)]
    )
    # the third counted event is the free at index 2, so the backward pass begins at position 3
    assert timeline.stages == (TimelineStage("forward", 0, 3), TimelineStage("backward", 3, 6))
    assert [timeline.stage_at(p) for p in range(8)] == [
        None,
        *["forward"] * 3,
        *["backward"] * 3,
        None,
    ]
    assert timeline.peak().stage == "backward"


def test_the_last_stage_runs_to_the_end() -> None:
    timeline = timeline_from_snapshots(*training_step(), marks=[("all", 0)])
    assert timeline.stages == (TimelineStage("all", 0, 7),)


def test_failed_requests_are_kept() -> None:
    oom = {"action": "oom", "size": 20 * MIB, "stream": 0, "device_free": 3 * MIB, "frames": []}
    timeline = timeline_from_snapshots(*snapshots([], [oom]))
    (failure,) = timeline.out_of_memory
    assert (failure.position, failure.requested_bytes, failure.device_free_bytes) == (
        1,
        20 * MIB,
        3 * MIB,
    )


def test_other_devices_are_left_out() -> None:
    first, last = snapshots(
        [segment(LARGE, live(2 * MIB)), segment(SMALL, live(512), device=1)], []
    )
    first["device_traces"] = [[], []]
    last["device_traces"] = [[alloc(LARGE + 2 * MIB, 4 * MIB)], [alloc(SMALL + 512, 512)]]
    assert timeline_from_snapshots(first, last, device=1).allocated_bytes == (512, 1024)


def test_what_was_traced_before_the_first_snapshot_is_left_out() -> None:
    first, last = training_step()
    earlier = [alloc(LARGE, 4 * MIB), event("snapshot", 0, 0)]
    first["device_traces"] = [earlier]
    last["device_traces"] = [earlier + last["device_traces"][0]]
    assert timeline_from_snapshots(first, last).event_count == 7


def test_missing_events_are_an_error_that_says_what_to_do() -> None:
    first, last = training_step()
    with pytest.raises(
        IncompleteTraceError,
        match=r"holds 5 allocations and frees, but torch counted 6\. .* raise max_entries",
    ):
        timeline_from_snapshots(first, last, counted=6)
    assert timeline_from_snapshots(first, last, counted=5).event_count == 7
