"""A program finds its own memory history, as if no report recorded another one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
from torch.cuda.memory import _record_memory_history, _snapshot

import vramlab
from vramlab.report.evidence.history_watch import HistoryWatch
from vramlab.report.evidence.program_history import ReportHistory


@contextmanager
def _kept_for_a_snapshot() -> Iterator[None]:
    history = ReportHistory(stacks="python")
    history.install()
    history.start()
    try:
        yield
    finally:
        history.remove()


REPORTS: dict[str, Callable[[], Any]] = {
    "read and cleared": lambda: HistoryWatch(1),
    "kept": lambda: HistoryWatch(1, keep=True),
    "a snapshot's": _kept_for_a_snapshot,
}


def allocate(size: int) -> torch.Tensor:
    return torch.ones(size, device="cuda")


def look(found: list[Any]) -> None:
    """Keep what the program finds, without times."""
    snapshot = _snapshot()
    for trace in snapshot["device_traces"]:
        for entry in trace:
            del entry["time_us"]
    found.append((snapshot["segments"], snapshot["device_traces"]))
    found.append(torch.cuda.memory.memory_snapshot())


def program(options: dict[str, Any]) -> list[Any]:
    """What a program finds before, within and after its history, and in a second one."""
    found: list[Any] = []
    before, earlier = allocate(1000), allocate(10)
    look(found)
    _record_memory_history(**options)
    inside = [allocate(size) for size in (2000, 3000, 4000)]
    look(found)
    del earlier, inside[0]
    inside.append(allocate(2**20))
    look(found)
    _record_memory_history(None)
    look(found)
    del inside[0]
    after = allocate(2000)
    look(found)
    _record_memory_history(context="alloc", max_entries=2)
    del before, after
    look(found)
    _record_memory_history(clear_history=True)
    torch.cuda.empty_cache()
    look(found)
    _record_memory_history(None)
    return found


OPTIONS: list[dict[str, Any]] = [
    {},
    {"stacks": "python"},
    {"context": "alloc"},
    {"context": "alloc", "stacks": "python"},
    {"context": "state"},
    {"context": None},
    {"max_entries": 3},
    {"enabled": "state"},
    {"skip_actions": ["free_requested", "snapshot"]},
]


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_program_finds_its_own_history(options: dict[str, Any], report: Any) -> None:
    """Every segment, block, entry and frame is that of a run without a report."""
    found = []
    for watched in (False, True):
        with ExitStack() as stack:
            stack.enter_context(vramlab.VirtualGPU("T4"))
            if watched:
                stack.enter_context(report())
            found.append(program(options))
    alone, beside = found
    for number, (expected, got) in enumerate(zip(alone, beside, strict=True)):
        assert got == expected, number


def test_what_a_program_records_is_not_the_reports() -> None:
    """The report's peak is of all of it: 3 blocks of 512 B."""
    with vramlab.VirtualGPU("T4"), HistoryWatch(1) as watch:
        kept = [allocate(1)]
        _record_memory_history(max_entries=1)
        kept.append(allocate(1))
        _record_memory_history(None)
        kept.append(allocate(1))
    assert watch.devices[0].peak().allocated_bytes == 3 * 512
    assert len(watch.devices[0].peak().blocks) == 3
