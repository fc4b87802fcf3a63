"""On which GPUs a program fits: if only the memory differs, no program runs again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from vramlab import catalogue
from vramlab.catalogue import GPUModel
from vramlab.report.summary import Fit
from vramlab.sizing.gpus import smallest_that_fits, try_gpus
from vramlab.sizing.runs import RunOutcome, UnusableRun
from vramlab.sizing.text import gpus_table
from vramlab.units import GIB

FAMILY = [catalogue.find(name) for name in ("A100-40GB", "A100-80GB", "L4")]
BY_CAPABILITY = frozenset({"compute_capability", "multiprocessors"})


class Program:
    """Runs a program that would allocate and reserve so much.

    Attributes:
        gpus: where it ran.
    """

    def __init__(
        self,
        allocated_bytes: int,
        reserved_bytes: int,
        facts: frozenset[str] | None = BY_CAPABILITY,
    ) -> None:
        self.gpus: list[str] = []
        self._sizes = allocated_bytes, reserved_bytes
        self._facts = facts

    def __call__(self, gpu: GPUModel, words: Sequence[str]) -> RunOutcome:
        self.gpus.append(gpu.name)
        allocated_bytes, reserved_bytes = self._sizes
        room_bytes = gpu.total_bytes - gpu.context_bytes
        fits = allocated_bytes <= room_bytes
        peak_bytes = min(reserved_bytes, room_bytes)  # what is cached is given back in time
        return RunOutcome(
            gpu.name, fits, allocated_bytes, peak_bytes, gpu.context_bytes, self._facts
        )


def test_a_gpu_that_differs_in_its_memory_only_is_not_run() -> None:
    program = Program(20 * GIB, 21 * GIB)
    tried = try_gpus(program, ["train.py"], FAMILY)
    assert program.gpus == ["A100-80GB", "L4"]  # the largest first
    assert [(each.gpu.name, each.outcome.fits, each.same_as) for each in tried] == [
        ("L4", True, None),
        ("A100-40GB", True, "A100-80GB"),
        ("A100-80GB", True, None),
    ]
    smallest = smallest_that_fits(tried)
    assert smallest is not None
    assert smallest.gpu.name == "L4"


def test_what_is_allocated_alone_can_be_too_much() -> None:
    program = Program(40 * GIB, 41 * GIB)
    tried = {each.gpu.name: each for each in try_gpus(program, ["train.py"], FAMILY)}
    assert program.gpus == ["A100-80GB", "L4"]
    assert tried["A100-40GB"].outcome.fits is False
    assert tried["A100-80GB"].outcome.fits is True


def test_where_the_cache_decides_it_is_run() -> None:
    # 38 GiB allocated and the context are below 39.39 GiB, 45 GiB reserved above.
    program = Program(38 * GIB, 45 * GIB)
    tried = {each.gpu.name: each for each in try_gpus(program, ["train.py"], FAMILY)}
    assert program.gpus == ["A100-80GB", "A100-40GB", "L4"]
    assert tried["A100-40GB"].outcome.fits is True


def test_what_is_too_much_for_the_largest_is_not_tried_on_the_smaller() -> None:
    program = Program(100 * GIB, 100 * GIB)
    tried = try_gpus(program, ["train.py"], FAMILY)
    assert program.gpus == ["A100-80GB", "L4"]
    assert smallest_that_fits(tried) is None
    assert str(gpus_table("train.py", tried)).endswith("The program fits on none of these GPUs.")


def test_a_program_that_asks_for_the_memory_runs_on_every_gpu() -> None:
    for facts in (BY_CAPABILITY | {"total_bytes"}, None):
        program = Program(GIB, GIB, facts)
        try_gpus(program, ["train.py"], FAMILY)
        assert sorted(program.gpus) == ["A100-40GB", "A100-80GB", "L4"]


def test_what_is_not_known_stands_in_the_table() -> None:
    def run(gpu: GPUModel, words: Sequence[str]) -> RunOutcome:
        found = Program(40 * GIB, 41 * GIB)(gpu, words)
        if not found.fits:
            return found
        return replace(found, unsure=Fit.AT_LEAST, reasons=("a loop runs on",))

    tried = try_gpus(run, ["train.py"], FAMILY)
    table = str(gpus_table("train.py", tried))
    words = {each.gpu.name: str(each.outcome.outcome) for each in tried}
    # What was counted is too much for two of them, and may be too little for the third.
    assert words == {
        "L4": "does not fit",
        "A100-40GB": "does not fit",
        "A100-80GB": "at least",
    }
    assert "Smallest GPU on which the program may fit: A100-80GB" in table
    assert table.endswith("at least, because a loop runs on")


def test_ctrl_c_leaves_what_is_known() -> None:
    def run(gpu: GPUModel, words: Sequence[str]) -> RunOutcome:
        if gpu.name == "L4":
            raise KeyboardInterrupt
        return Program(20 * GIB, 21 * GIB)(gpu, words)

    tried = try_gpus(run, ["train.py"], FAMILY)
    assert [each.gpu.name for each in tried] == ["A100-40GB", "A100-80GB"]
    told = str(gpus_table("train.py", tried, len(FAMILY) - len(tried)))
    assert told.endswith("The program fits on A100-40GB; 1 smaller GPU was not tried.")
    with pytest.raises(KeyboardInterrupt):  # nothing is known yet
        try_gpus(run, ["train.py"], FAMILY[2:])


def test_a_program_that_fails_on_some_gpus_leaves_the_others_their_rows() -> None:
    def run(gpu: GPUModel, words: Sequence[str]) -> RunOutcome:
        if gpu.name == "L4":
            raise UnusableRun("train.py failed before it used a GPU: no float64")
        return Program(20 * GIB, 21 * GIB)(gpu, words)

    told = str(gpus_table("train.py", try_gpus(run, ["train.py"], FAMILY)))
    assert "L4: train.py failed before it used a GPU: no float64" in told
    assert "Smallest GPU on which the program fits: A100-40GB" in told
    with pytest.raises(UnusableRun):
        try_gpus(run, ["train.py"], FAMILY[2:])
