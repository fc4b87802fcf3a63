"""Three processes that divide a model: who has which values, and that they learn the same."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import vramlab
from vramlab_course.lessons.l20_zero.formulas import STAGES
from vramlab_course.lessons.l20_zero.ranks import NAMES, train
from vramlab_course.programs.ranks import torchrun

pytestmark = pytest.mark.long


@cache
def three_ranks() -> list[dict[str, Any]]:
    return torchrun("vramlab_course.lessons.l20_zero.ranks", 3)


def test_each_value_has_a_name() -> None:
    assert len(NAMES) == 9
    assert (NAMES[1.0], NAMES[13.0], NAMES[22.0]) == ("a0", "b2", "c1")


@pytest.mark.parametrize("rank", range(3))
def test_a_rank_has_its_own_and_all_of_the_layer_that_works(rank: int) -> None:
    held = three_ranks()[rank]["held"]
    own = {f"{layer}{rank}" for layer in "abc"}
    moments = {"before the step": "", "after backward": ""} | {
        f"{way}, L{layer}": layer for way in ("forward", "backward") for layer in "abc"
    }
    assert set(held) == set(moments)
    for moment, layer in moments.items():
        gathered = {f"{layer}{part}" for part in range(3)} if layer else set()
        assert set(held[moment]) == own | gathered, moment
    order = [moment[-2:] for moment in held if moment.startswith("backward")]
    assert order == ["Lc", "Lb", "La"]


@pytest.mark.parametrize("stage", STAGES.values())
def test_every_stage_learns_what_one_process_learns(stage: str) -> None:
    """But for the order of sums: each rank averages 4 rows first, then the three means."""
    with vramlab.VirtualGPU("T4", values=True):
        alone = train(None)
    for report in three_ranks():
        assert report["trained"][stage] == pytest.approx(alone, rel=1e-12, abs=1e-15)
