"""Processes that torchrun starts: they train as one would, and what they say comes back."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import pytest

import vramlab
from vramlab_course.lessons.l19_dp_and_ddp.ranks import train_alone
from vramlab_course.programs.ranks import torchrun

pytestmark = pytest.mark.long

STEPS = 3


@cache
def two_ranks() -> list[dict[str, Any]]:
    return torchrun("vramlab_course.lessons.l19_dp_and_ddp.ranks", 2, 4, STEPS)


def test_each_rank_reports_by_its_number_from_a_process_of_its_own() -> None:
    assert [report["rank"] for report in two_ranks()] == [0, 1]
    assert len({os.getpid(), *(report["pid"] for report in two_ranks())}) == 3


def test_the_batch_size_is_that_of_each_rank() -> None:
    assert [report["rows"] for report in two_ranks()] == [4, 4]


def test_ranks_stay_equal_to_the_last_bit() -> None:
    first, second = (report["parameters"] for report in two_ranks())
    assert first == second
    assert len(first) == 8 * 8 + 8 + 8 + 1


def test_gradients_that_lie_in_buckets_are_the_same() -> None:
    for report in two_ranks():
        assert report["parameters_with_views"] == report["parameters"]


def test_ranks_learn_what_one_process_learns_from_all_rows() -> None:
    """But for the order of sums: each rank averages 4 rows first, then the two means."""
    with vramlab.VirtualGPU("T4", values=True):
        alone = train_alone(8, STEPS)
    assert two_ranks()[0]["parameters"] == pytest.approx(alone, rel=1e-12, abs=1e-15)


def test_says_what_a_process_said_that_failed() -> None:
    with pytest.raises(RuntimeError, match=r"No module named vramlab_course\..*\.missing"):
        torchrun("vramlab_course.programs.ranks.missing", 1)
