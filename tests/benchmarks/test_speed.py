"""The workloads of the speed benchmark run in every way that they are measured in."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.speed import WAYS, Workload, bert, chain, many_parameters, measure


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
    seconds = measure(workload, rounds=1)
    assert seconds.keys() == WAYS.keys()
    assert min(seconds.values()) > 0
