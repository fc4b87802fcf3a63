"""Where two traces part, and what only one of them has."""

from __future__ import annotations

from vramlab.recordings.alignment import Surplus, first_parting, surpluses
from vramlab.recordings.origins import UNKNOWN, Origin
from vramlab.recordings.trace import Event, Trace

MM = Origin("mm", "", "", "train.py:1 f")


def trace(*sizes: int, stage: str = "forward") -> Trace:
    """Allocations one behind the other in a segment."""
    events, offset = [], 0
    for block, size in enumerate(sizes):
        events.append(Event("alloc", size, 0, offset, 0, block, stage, MM))
        offset += -(-size // 512) * 512
    return Trace(tuple(events))


def test_equal_traces_do_not_part() -> None:
    assert first_parting(trace(1, 2, 3), trace(1, 2, 3), "forward") is None
    assert surpluses(trace(1, 2, 3), trace(1, 2, 3), "forward") == []


def test_the_first_other_size_is_named() -> None:
    parting = first_parting(trace(1, 2, 3), trace(1, 5, 3), "forward")
    assert parting is not None
    assert (parting.number, parting.allocation, parting.what) == (1, 1, "another size")
    assert parting.recorded is not None
    assert parting.virtual is not None
    assert parting.before is not None
    sizes = (parting.recorded.size_bytes, parting.virtual.size_bytes, parting.before.size_bytes)
    assert sizes == (2, 5, 1)


def test_one_may_end_before_the_other() -> None:
    parting = first_parting(trace(1, 2), trace(1), "forward")
    assert parting is not None
    assert (parting.allocation, parting.virtual, parting.what) == (1, None, "one of them has ended")


def test_a_size_goes_before_a_place() -> None:
    """The second lies elsewhere; the third has another size, and is the one that is named."""
    recorded, virtual = trace(1, 2, 3), trace(1, 2, 4)
    moved = Event("alloc", 2, 7, 0, 0, 1, "forward", MM)
    parting = first_parting(
        recorded, Trace((virtual.events[0], moved, virtual.events[2])), "forward"
    )
    assert parting is not None
    assert (parting.number, parting.what) == (2, "another size")


def test_another_place_and_another_action() -> None:
    recorded = trace(1, 2)
    moved = Event("alloc", 2, 7, 0, 0, 1, "forward", MM)
    parting = first_parting(recorded, Trace((recorded.events[0], moved)), "forward")
    assert parting is not None
    assert (parting.number, parting.what) == (1, "another place")
    freed = Event("free_requested", 1, 0, 0, 0, 0, "forward", UNKNOWN)
    parting = first_parting(
        Trace((recorded.events[0], freed, recorded.events[1])), recorded, "forward"
    )
    assert parting is not None
    assert (parting.number, parting.allocation, parting.what) == (1, 1, "another action")


def test_a_missing_allocation_is_told_from_all_that_agree_behind_it() -> None:
    recorded = trace(10, 20, 30, 40, 4096, 50, 60, 70, 4096, 80, 90, 100)
    virtual = trace(10, 20, 30, 40, 50, 60, 70, 80, 90, 100)
    nowhere = MM._replace(line="")
    assert surpluses(recorded, virtual, "forward") == [Surplus("recorded", 4096, nowhere, 2)]
    assert surpluses(virtual, recorded, "forward") == [Surplus("virtual", 4096, nowhere, 2)]


def test_another_size_is_missing_here_and_too_much_there() -> None:
    found = surpluses(trace(1, 2, 3, 4, 5), trace(1, 7, 3, 4, 5), "forward")
    assert [(each.side, each.size_bytes, each.count) for each in found] == [
        ("virtual", 7, 1),
        ("recorded", 2, 1),
    ]


def test_other_stages_are_left_out() -> None:
    assert first_parting(trace(1, stage="a"), trace(2, stage="a"), "b") is None
