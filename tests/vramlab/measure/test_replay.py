"""Sizes of blocks, told from where they lie."""

from __future__ import annotations

from trace_records import LARGE, block, segment

from vramlab.measure.history.replay import Replay, SplitRules
from vramlab.units import MIB

DEFAULT = SplitRules()


def test_requests_of_max_split_size_are_not_split() -> None:
    replay = Replay([segment(LARGE, block(60 * MIB))], SplitRules(max_split_bytes=20 * MIB))
    assert replay.allocate(LARGE, 20 * MIB) == 60 * MIB


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
