"""An exercise of two parts, of which the second builds on the first and has partial credit."""

from __future__ import annotations

from vramlab_classroom.judge.task import Exercise, Predict


def _measure_rounded(size: int) -> int:
    return -(-size // 8) * 8


def _measure_price(size: int) -> int:
    return 10 + _measure_rounded(size) if size else 0


EXERCISE = Exercise(
    name="stepwise",
    module=__name__,
    tasks=(
        Predict(
            name="rounded",
            points=1,
            minutes=1,
            visible=({"size": 3}, {"size": 16}),
            hidden=lambda random: [{"size": 8 * random.randrange(9) + 5}],
            measure=_measure_rounded,
        ),
        Predict(
            name="price",
            points=3,
            minutes=1,
            visible=({"size": 0}, {"size": 3}, {"size": 16}, {"size": 17}),
            hidden=lambda random: [{"size": size} for size in (9, 24, 40, 45)],
            measure=_measure_price,
        ),
    ),
)
