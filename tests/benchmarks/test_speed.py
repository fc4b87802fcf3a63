"""The arithmetic of the speed benchmark, on times made by hand; and that its workloads run."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from benchmarks.speed import (
    bert,
    best,
    chain,
    exponent,
    growth,
    many_parameters,
    spread,
    table,
)
from benchmarks.ways import WAYS, Workload, measure

TWICE_AND_TEN_TIMES = {
    "bare meta": [0.002, 0.001],
    "virtual GPU": [0.002, 0.003],
    "MemTracker": [0.010, 0.010],
}


@pytest.mark.parametrize("power", [0.5, 1, 2])
def test_the_exponent_of_a_power_law_is_found(power: float) -> None:
    sizes = (10, 100, 1000)
    assert exponent(sizes, [3 * size**power for size in sizes]) == pytest.approx(power)


def test_a_constant_does_not_grow() -> None:
    assert exponent((1, 10), (5, 5)) == 0


def test_one_size_makes_no_line() -> None:
    with pytest.raises(ValueError, match=r"needs two sizes or more, not \[7, 7\]"):
        exponent((7, 7), (1, 2))


def test_the_best_of_the_rounds_counts() -> None:
    assert best(TWICE_AND_TEN_TIMES) == {
        "bare meta": 0.001,
        "virtual GPU": 0.002,
        "MemTracker": 0.010,
    }


def test_the_spread_is_that_of_the_noisiest_way() -> None:
    assert spread(TWICE_AND_TEN_TIMES) == 1.0  # bare meta: (2 ms - 1 ms) / 1 ms


def test_the_table_shows_times_and_ratios_side_by_side() -> None:
    header, line = table({"a model": TWICE_AND_TEN_TIMES}).splitlines()
    assert " ".join(header.split()) == (
        "bare meta ms virtual GPU ms MemTracker ms x virtual GPU x MemTracker spread"
    )
    assert " ".join(line.split()) == "a model 1.00 2.00 10.00 2.00 10.00 100%"


def test_a_way_that_was_left_out_has_no_number() -> None:
    quick = {name: times for name, times in TWICE_AND_TEN_TIMES.items() if name != "MemTracker"}
    line = table({"a model": quick}).splitlines()[1]
    assert " ".join(line.split()) == "a model 1.00 2.00 - 2.00 - 100%"


def test_growth_of_a_way_is_told_from_the_sizes_that_it_was_measured_at() -> None:
    small = {"bare meta": [1.0], "virtual GPU": [1.0], "MemTracker": [1.0]}
    middle = {"bare meta": [2.0], "virtual GPU": [2.0], "MemTracker": [4.0]}
    large = {"bare meta": [4.0], "virtual GPU": [4.0]}
    assert growth((1, 2, 4), (small, middle, large)).splitlines()[-1] == (
        "MemTracker   time grows as size^2.00, between the two largest as size^2.00"
    )


def test_growth_is_told_for_every_way() -> None:
    def seconds(size: int) -> dict[str, list[float]]:
        return {"bare meta": [size], "virtual GPU": [2 * size], "MemTracker": [size**2]}

    assert growth((1, 10, 100), [seconds(size) for size in (1, 10, 100)]).splitlines() == [
        "bare meta    time grows as size^1.00, between the two largest as size^1.00",
        "virtual GPU  time grows as size^1.00, between the two largest as size^1.00",
        "MemTracker   time grows as size^2.00, between the two largest as size^2.00",
    ]


@pytest.mark.parametrize(
    "workload",
    [
        partial(bert, layers=1, batch=1, length=8),
        partial(chain, ops=3),
        partial(many_parameters, parameters=2),
    ],
    ids=["bert", "chain", "many parameters"],
)
def test_every_workload_runs_in_every_way(workload: Workload) -> None:
    measured = measure(workload, rounds=2)
    rounds = {name: len(times) for name, times in measured.items()}
    assert rounds == {"bare meta": 2, "virtual GPU": 2, "MemTracker": 1}
    assert rounds.keys() == WAYS.keys()
    assert all(min(times) > 0 for times in measured.values())


def test_a_chain_is_as_many_ops_as_it_says() -> None:
    training = chain("meta", ops=3)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        training.model()
    assert sum(event.name == "aten::mul" for event in profile.events()) == 3
