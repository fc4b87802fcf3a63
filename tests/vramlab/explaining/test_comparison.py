"""A real GPU's snapshot beside a run of its script."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vramlab import cli
from vramlab.allocator import AllocatorSettings, CachingAllocator, DeviceMemory, snapshot
from vramlab.explaining.comparison import Compared, compare
from vramlab.explaining.traces import GPUTrace, read_gpus
from vramlab.units import GIB, MIB

SNAPSHOTS = Path(__file__).parents[3] / "assets" / "recordings" / "h100" / "snapshots"


def the_gpu(program: Callable[[CachingAllocator], None], begin: int = 0) -> GPUTrace:
    allocator = CachingAllocator(DeviceMemory(GIB), AllocatorSettings())
    allocator.record_history()
    program(allocator)
    shown = snapshot([allocator])
    shown["device_traces"][0] = shown["device_traces"][0][begin:]
    (gpu,) = read_gpus(shown)
    return gpu


def stack(line: int) -> list[dict[str, Any]]:
    return [{"filename": "/home/me/train/model.py", "line": line, "name": "forward"}]


def steps(allocator: CachingAllocator, extra_bytes: int = 0, late: bool = False) -> None:
    """Three steps of a 4 MiB and an 8 MiB block; the second may have one more, or free later."""
    allocator.malloc(20 * MIB, context=stack(1))
    for step in range(3):
        first = allocator.malloc((4 + step) * MIB, context=stack(2))
        if step == 1 and extra_bytes:
            allocator.free(allocator.malloc(extra_bytes, context=stack(9)), context=stack(9))
        if not late:
            allocator.free(first, context=stack(3))
        second = allocator.malloc((8 + step) * MIB, context=stack(4))
        if late:
            allocator.free(first, context=stack(3))
        allocator.free(second, context=stack(5))


def compared(real: GPUTrace, virtual: GPUTrace) -> Compared:
    (found,) = compare([real], [virtual])
    return found


def test_the_same_program_is_equal() -> None:
    found = compared(the_gpu(steps), the_gpu(steps))
    assert (found.requests, found.equal_requests, found.equal_frees) == (7, 7, 7)  # 1 + 3 * 2
    assert found.is_equal


def test_a_request_that_only_one_has_is_named_with_its_line() -> None:
    found = compared(the_gpu(steps), the_gpu(lambda allocator: steps(allocator, 6 * MIB)))
    assert found.equal_requests == 7
    assert dict(found.extra) == {("virtual", "train/model.py:9 forward", 6 * MIB): 1}
    # Before it: the 20 MiB, two blocks of the first step and one of the second.
    assert found.first == (
        4,
        f"{9 * MIB:,} bytes: train/model.py:4 forward",
        f"{6 * MIB:,} bytes: train/model.py:9 forward",
    )
    assert not found.is_equal


def test_a_block_that_is_freed_later_is_counted() -> None:
    found = compared(the_gpu(steps), the_gpu(lambda allocator: steps(allocator, late=True)))
    assert (found.equal_requests, found.equal_frees) == (7, 4)  # the first of each step is late
    assert not found.extra


def test_a_trace_that_begins_in_the_middle_is_found_in_the_run() -> None:
    whole = the_gpu(steps)
    # Before the second step: its first request is event number `begin`.
    begin = whole.lives[3].born
    found = compared(the_gpu(steps, begin), whole)
    assert (found.begins, found.requests) == (3, 4)
    assert (found.equal_requests, found.equal_frees) == (4, 4)


def test_a_snapshot_of_a_real_h100_is_rebuilt(capsys: pytest.CaptureFixture[str]) -> None:
    """The batch grows until memory runs out, under a limit of 8 GiB."""
    words = ["--gpu", "H100", "--torch-version", "2.11", "--json"]
    paths = [str(SNAPSHOTS / "batch.pickle.xz"), str(SNAPSHOTS / "batch.py")]
    assert cli.main(["compare", *words, *paths]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["equal"]
    assert found["requests"] == found["equal_frees"] == 2515


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["snapshot.pickle"], "a snapshot is compared with a run of its script"),
        (["recording.json", "train.py"], "leave out 'train.py'"),
    ],
)
def test_a_missing_or_superfluous_script_is_named(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["compare", *words]) != 0
    assert says in capsys.readouterr().err
