"""Sizes of blocks, told from where they lie."""

from __future__ import annotations

import pytest
from trace_records import LARGE, SMALL, block, live, segment

from vramlab.measure.history.replay import Replay, SplitRules
from vramlab.units import MIB

DEFAULT = SplitRules()


def test_small_pool_splits_off_anything_from_512_bytes() -> None:
    replay = Replay([segment(SMALL, block(2048))], DEFAULT)
    assert replay.allocate(SMALL, 1000) == 1024
    assert replay.allocate(SMALL + 1024, 512) == 512
    assert replay.allocate(SMALL + 1536, 1) == 512


def test_large_pool_keeps_a_rest_of_one_mib_and_splits_off_more() -> None:
    rest = 1 * MIB
    replay = Replay([segment(LARGE, block(4 * MIB + rest), block(4 * MIB + rest + 512))], DEFAULT)
    assert replay.allocate(LARGE, 4 * MIB) == 4 * MIB + rest  # rest > 1 MiB is false
    assert replay.allocate(LARGE + 4 * MIB + rest, 4 * MIB) == 4 * MIB


def test_expandable_segments_split_in_the_large_pool_like_the_small_one() -> None:
    replay = Replay([], SplitRules(expandable_segments=True))
    replay.add_memory(LARGE, 20 * MIB, expandable=True)
    assert replay.allocate(LARGE, 20 * MIB - 512) == 20 * MIB - 512
    assert replay.allocate(LARGE + 20 * MIB - 512, 300) == 512


def test_requests_of_max_split_size_are_not_split() -> None:
    replay = Replay([segment(LARGE, block(60 * MIB))], SplitRules(max_split_bytes=20 * MIB))
    assert replay.allocate(LARGE, 20 * MIB) == 60 * MIB


def test_freed_blocks_merge_on_both_sides_but_not_across_segments() -> None:
    replay = Replay(
        [
            segment(LARGE, live(2 * MIB), live(2 * MIB), live(2 * MIB)),
            segment(LARGE + 6 * MIB, live(2 * MIB)),
        ],
        DEFAULT,
    )
    for part in (0, 2, 3, 1):
        replay.complete_free(LARGE + 2 * part * MIB)
    # 6 MiB in one piece; with the neighbouring segment it would be 8 and be split
    assert replay.allocate(LARGE, 5 * MIB) == 6 * MIB
    assert replay.allocate(LARGE + 6 * MIB, 2 * MIB) == 2 * MIB


def test_newly_mapped_pages_join_the_free_block_before_them() -> None:
    replay = Replay([], SplitRules(expandable_segments=True))
    replay.add_memory(LARGE, 20 * MIB, expandable=True)
    replay.add_memory(LARGE + 20 * MIB, 20 * MIB, expandable=True)
    assert replay.allocate(LARGE, 30 * MIB) == 30 * MIB


def test_pages_are_unmapped_from_the_middle_of_a_free_block() -> None:
    replay = Replay([], SplitRules(expandable_segments=True))
    replay.add_memory(LARGE, 60 * MIB, expandable=True)
    replay.remove_memory(LARGE + 20 * MIB, 20 * MIB)
    assert replay.allocate(LARGE, 30 * MIB) is None  # only 20 MiB are left there
    assert replay.allocate(LARGE, 20 * MIB) == 20 * MIB
    assert replay.allocate(LARGE + 40 * MIB, 20 * MIB) == 20 * MIB


def test_a_removed_segment_serves_no_request() -> None:
    replay = Replay([segment(LARGE, block(20 * MIB))], DEFAULT)
    replay.remove_memory(LARGE, 20 * MIB)
    assert replay.allocate(LARGE, 2 * MIB) is None


def test_memory_in_use_serves_no_request() -> None:
    waiting = block(2 * MIB, "active_awaiting_free", 2 * MIB)
    replay = Replay([segment(LARGE, live(2 * MIB), waiting)], DEFAULT)
    assert replay.allocate(LARGE, 2 * MIB) is None
    assert replay.allocate(LARGE + 2 * MIB, 2 * MIB) is None
    replay.complete_free(LARGE + 2 * MIB)
    assert replay.allocate(LARGE + 2 * MIB, 2 * MIB) == 2 * MIB


def test_rules_are_read_from_a_snapshot() -> None:
    divisions = {str(2**power): 4 if power else 2 for power in range(16)}
    rules = SplitRules.from_snapshot(
        {
            "allocator_settings": {
                "max_split_size": 20 * MIB,
                "expandable_segments": True,
                "roundup_power2_divisions": divisions,
            }
        }
    )
    assert rules == SplitRules(20 * MIB, True, (2, *[4] * 15))
    # 5 MiB lies between 4 and 8; four steps of 1 MiB. 1.2 MiB: two steps of 0.5 MiB from 1 to 2.
    assert rules.rounded(5 * MIB + 1) == 6 * MIB
    assert rules.rounded(int(1.2 * MIB)) == 3 * MIB // 2
    assert SplitRules.from_snapshot({}) == DEFAULT
    assert SplitRules.from_snapshot({"allocator_settings": {"max_split_size": -1}}) == DEFAULT


@pytest.mark.parametrize(("requested", "rounded"), [(1, 512), (512, 512), (513, 1024)])
def test_requests_are_rounded_to_512_bytes(requested: int, rounded: int) -> None:
    assert DEFAULT.rounded(requested) == rounded
