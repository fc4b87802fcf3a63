"""Traces know no absolute addresses, and survive being written down."""

from __future__ import annotations

import json
from typing import Any

from vramlab.recordings.trace import Trace, trace_of_history
from vramlab.units import MIB

STAGES = {"0": "forward", "after 0": "after forward"}


def entry(
    action: str, address: int, size: int, stage: str = "0", stream: int = 0
) -> dict[str, Any]:
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": stream,
        "user_metadata": stage,
        "frames": [{"filename": "??", "line": 0, "name": "at::_ops::mm::call"}],
    }


def history(base: int, stream: int = 0) -> list[dict[str, Any]]:
    """Two segments at two bases; the second is given back, and another one takes its place."""
    far = base + 64 * MIB
    return [
        entry("segment_alloc", far, 2 * MIB),
        entry("alloc", far + 512, 100, stream=stream),
        entry("segment_alloc", base, 20 * MIB),
        entry("alloc", base, 3 * MIB),
        entry("free_requested", base, 3 * MIB),
        entry("free_completed", base, 3 * MIB),
        entry("segment_free", base, 20 * MIB, "after 0"),
        entry("segment_alloc", base, 22 * MIB, "after 0"),
        entry("snapshot", 0, 0, "after 0"),
        entry("alloc", base, 21 * MIB, "after 0"),
    ]


def test_addresses_become_segments_in_order_and_offsets() -> None:
    trace = trace_of_history(history(7 * MIB), STAGES)
    told = [(e.action, e.segment, e.offset_bytes, e.block, e.size_bytes) for e in trace.events]
    assert told == [
        ("segment_alloc", 0, 0, -1, 2 * MIB),
        ("alloc", 0, 512, 0, 100),
        ("segment_alloc", 1, 0, -1, 20 * MIB),
        ("alloc", 1, 0, 1, 3 * MIB),
        ("free_requested", 1, 0, 1, 3 * MIB),
        ("free_completed", 1, 0, 1, 3 * MIB),
        ("segment_free", 1, 0, -1, 20 * MIB),
        ("segment_alloc", 2, 0, -1, 22 * MIB),  # a new number at the old address
        ("alloc", 2, 0, 2, 21 * MIB),
    ]
    assert [event.stage for event in trace.events] == ["forward"] * 6 + ["after forward"] * 3
    assert [event.origin.ops for event in trace.events if event.action == "alloc"] == ["mm"] * 3


def test_two_machines_that_do_the_same_have_the_same_trace() -> None:
    one = trace_of_history(history(7 * MIB, stream=0x7F01), STAGES)
    other = trace_of_history(history(999 * MIB, stream=0x55), STAGES)
    assert one == other
    assert {event.stream for event in one.events} == {0, 1}


def test_pages_mapped_one_after_the_other_are_one_segment() -> None:
    trace = trace_of_history(
        [
            entry("segment_map", 0, 20 * MIB),
            entry("segment_map", 20 * MIB, 40 * MIB),
            entry("alloc", 10 * MIB, 30 * MIB),
            entry("segment_map", 512 * MIB, 2 * MIB),
        ],
        STAGES,
    )
    assert [(event.segment, event.offset_bytes) for event in trace.events] == [
        (0, 0),
        (0, 20 * MIB),
        (0, 10 * MIB),
        (1, 0),
    ]


def test_a_trace_survives_json() -> None:
    trace = trace_of_history(history(0, stream=3), STAGES)
    assert Trace.from_dict(json.loads(json.dumps(trace.to_dict()))) == trace
