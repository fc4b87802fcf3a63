"""A small exercise for the tests of grading itself. Its truths take no GPU."""

from __future__ import annotations

import os
import time

from vramlab_classroom.judge.task import (
    Diagnose,
    Exercise,
    Fix,
    Mistake,
    NotFixed,
    Observation,
    Predict,
)


def _measure_double(size: int) -> int:
    return 2 * size


def _observe_sum(first: int, second: int) -> Observation:
    return Observation({"sizes": [first, second]}, first + second)


def _observe_cause(unit: str) -> Observation:
    return Observation({"unit": unit}, "rounding")


def _try_shrink(answer, size: int) -> str:
    kept = answer([0] * size)
    if len(kept) > size // 2:
        raise NotFixed(f"{len(kept)} of {size} are left")
    return f"{len(kept)} of {size} are left"


def _try_broken(answer, how: str) -> str:
    if how == "raise":
        raise KeyError("a fault of the task")
    if how == "die":
        os.abort()
    time.sleep(3600)
    return "never"


EXERCISE = Exercise(
    name="toy",
    module=__name__,
    tasks=(
        Predict(
            name="double",
            points=2,
            minutes=1,
            visible=({"size": 1}, {"size": 2}),
            hidden=lambda random: [{"size": random.randrange(100, 200)} for _ in range(3)],
            measure=_measure_double,
            mistakes=(
                Mistake("You answered the size itself.", lambda size: size),
                Mistake("You answered the square.", lambda size: size * size),
                Mistake("You added one for each.", lambda size: 2 * size + 1),
            ),
        ),
        Diagnose(
            name="total",
            points=1,
            minutes=1,
            visible=({"first": 1, "second": 2},),
            observe=_observe_sum,
            mistakes=(Mistake("You counted the first only.", lambda sizes: sizes[0]),),
        ),
        Diagnose(
            name="cause",
            points=1,
            minutes=1,
            visible=({"unit": "page"},),
            observe=_observe_cause,
            is_value=True,
            mistakes=(Mistake("Nothing was lost.", lambda unit: "leak"),),
        ),
        Fix(
            name="shrink",
            points=3,
            minutes=1,
            visible=({"size": 10},),
            hidden=lambda random: [{"size": 12}],
            trial=_try_shrink,
        ),
        *(
            Fix(
                name=f"broken_{how}",
                points=1,
                minutes=1,
                visible=({"how": how},),
                hidden=lambda random: [],
                trial=_try_broken,
            )
            for how in ("raise", "die")
        ),
    ),
)
