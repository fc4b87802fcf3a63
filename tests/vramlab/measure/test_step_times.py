"""Events in time: as long as FLOPs and bytes say, and after all that they wait for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from vramlab import catalogue
from vramlab.measure.step_events import StepEvent, StepMark, StepWait, StepWork, WorkKind
from vramlab.measure.step_times import Rates, put_in_time

T4 = catalogue.find("T4")
RATES = Rates(T4, link_bytes_per_s=1e9, matmul=1.0, memory=1.0, link=1.0)
FLOPS_PER_MS = int(T4.fp32_flops_per_s / 1000)
BYTES_PER_MS = 10**6


def computed(ms: int, handle: int = -1, stream: int = 0, **others: int) -> StepWork:
    return StepWork(
        "operator", "aten.mm", "", False, stream, 1, ms * FLOPS_PER_MS, handle=handle, **others
    )


def carried(
    ms: int, handle: int, kind: WorkKind = "collective", stream: int = 0, peer: int | None = None
) -> StepWork:
    return StepWork(kind, kind, "", False, stream, ms * BYTES_PER_MS, handle=handle, peer=peer)


def times(*ranks: list[StepEvent], rates: Rates = RATES) -> list[list[tuple[int, int]]]:
    """Begin and end of each work of each rank, in ms."""
    return [
        [(round(each.start_s * 1000), round(each.end_s * 1000)) for each in rank.works]
        for rank in put_in_time(ranks, rates)
    ]


def test_work_takes_as_long_as_its_flops_or_its_bytes() -> None:
    # Half the peak FLOP/s: twice the time. 0.25 of the bandwidth: four times.
    rates = replace(RATES, matmul=0.5, memory=0.25, link=0.1)
    work = computed(3)
    assert rates.seconds(work) == pytest.approx(0.006, rel=1e-9)
    moving = replace(work, flops=0, moved_bytes=T4.memory_bandwidth_bytes_per_s)
    assert rates.seconds(moving) == pytest.approx(4)
    # tensor cores compute float16
    half = replace(work, dtype="float16")
    assert rates.seconds(work) / rates.seconds(half) == pytest.approx(
        (T4.fp16_tensor_flops_per_s or 0) / T4.fp32_flops_per_s
    )
    assert rates.seconds(carried(2, 0)) == pytest.approx(0.02)
    host = carried(1, 0, "to host")
    assert rates.seconds(host) == pytest.approx(10**6 / T4.host_bandwidth_bytes_per_s / 0.1)


def test_a_collective_overlaps_until_something_waits_for_it() -> None:
    events = [computed(2), carried(5, handle=7), computed(1), StepWait(0, 7), computed(1)]
    assert times(events) == [[(0, 2), (2, 7), (2, 3), (7, 8)]]


def test_collectives_share_a_link() -> None:
    assert times([carried(5, 1), computed(1), carried(2, 2)]) == [[(0, 5), (0, 1), (5, 7)]]


def test_streams_wait_for_marks_only() -> None:
    events = [computed(4), StepMark(0, 1), computed(2), StepWait(3, 1), computed(1, stream=3)]
    assert times(events) == [[(0, 4), (4, 6), (4, 5)]]
    assert times([computed(4), computed(1, stream=3)]) == [[(0, 4), (0, 1)]]


def test_python_waits_for_copies_that_block() -> None:
    copy = replace(carried(1, 1, "to host"), moved_bytes=int(T4.host_bandwidth_bytes_per_s / 1000))
    events = [computed(2), replace(copy, blocks=True), computed(1, stream=3)]
    assert times(events) == [[(0, 2), (2, 3), (3, 4)]]


def test_what_is_received_has_been_sent() -> None:
    first = [computed(3), carried(2, 1, "send", peer=1)]
    second = [carried(2, 1, "receive", peer=0), computed(1), StepWait(0, 1), computed(1)]
    assert times(first, second) == [[(0, 3), (3, 5)], [(0, 1), (5, 6)]]
    # either may be the first in the list
    swapped = [replace(each, peer=1) if each is second[0] else each for each in second]
    sender = [first[0], carried(2, 1, "send", peer=0)]
    assert times(swapped, sender) == [[(0, 1), (5, 6)], [(0, 3), (3, 5)]]


def test_a_rank_alone_receives_when_it_has_sent() -> None:
    """As all ranks of a ring do the same."""
    events = [carried(4, 1, "send", peer=1), carried(4, 2, "receive", peer=3), computed(1)]
    assert times([*events, StepWait(0, 2), computed(1)]) == [[(0, 4), (0, 1), (4, 5)]]


def test_ranks_that_wait_for_each_other_are_named() -> None:
    waits = [carried(1, 1, "receive", peer=1), StepWait(0, 1)]
    with pytest.raises(ValueError, match=r"ranks wait for what no rank sends: 0$"):
        put_in_time([waits, [computed(1)]], RATES)


def test_memory_is_where_the_default_stream_is() -> None:
    events: list[StepEvent] = [
        computed(2, peak_bytes=30, after_bytes=20),
        replace(carried(9, 1), peak_bytes=25, after_bytes=25),
        computed(1, peak_bytes=50, after_bytes=10),
    ]
    (rank,) = put_in_time([events], RATES)
    assert [(round(moment * 1000), size) for moment, size in rank.held()] == [
        (0, 30),
        (2, 50),  # the most of that moment: 20, 25 and 25 came before
        (3, 10),
    ]
    assert rank.peak_bytes == 50
    assert rank.end_s == pytest.approx(0.011)
