"""The choice that exercise 22 expects waits least of those that fit."""

from __future__ import annotations

from itertools import combinations, pairwise, product
from typing import Any

from vramlab.cuda_rules.cublas import BEFORE_HOPPER_BYTES
from vramlab_course.lessons.l22_pipeline_parallel.formulas import Pipeline, cut
from vramlab_course.lessons.l22_pipeline_parallel.tasks import (
    BATCH,
    GOOD,
    LIMIT_BYTES,
    MICRO_BATCHES,
    RANKS,
    WIDTHS,
    _share_of_waiting,
)

CHAIN = len(WIDTHS) - 1


def cuts() -> list[list[int]]:
    """All that could wait less than the good one, whose longest rank has 9 layers' work.

    The longest has 10 at least otherwise; then the four work 32 of 40 slots at most, and wait 20 %.
    """
    every = (
        [b - a for a, b in pairwise((0, *places, CHAIN))]
        for places in combinations(range(1, CHAIN), RANKS - 1)
    )
    return [layers for layers in every if max(*layers[:-1], layers[-1] - 1 + 8) <= 9]


def test_no_choice_that_fits_waits_less() -> None:
    assert _share_of_waiting(GOOD) < 0.2
    assert GOOD["layers"] in cuts()
    better: list[dict[str, Any]] = []
    for schedule, micro_batches, layers in product(("GPipe", "1F1B"), MICRO_BATCHES, cuts()):
        chosen: dict[str, Any] = {
            "schedule": schedule,
            "micro_batches": micro_batches,
            "layers": layers,
        }
        if _share_of_waiting(chosen) < _share_of_waiting(GOOD):
            better.append(chosen)
    assert {"schedule": "1F1B", "micro_batches": 32, "layers": [8, 8, 8, 1]} in better
    for chosen in better:
        pipeline = Pipeline(
            chosen["schedule"],
            BATCH // chosen["micro_batches"],
            chosen["micro_batches"],
            cut(WIDTHS, chosen["layers"]),
        )
        peak_bytes = max(pipeline.stage(rank).peak_bytes for rank in range(RANKS))
        assert peak_bytes + 2 * BEFORE_HOPPER_BYTES > LIMIT_BYTES
