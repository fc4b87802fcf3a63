"""Hidden cases are drawn until no mistake with a name passes them all."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

from vramlab_classroom.judge.hidden_cases import MOST_DRAWS, draw, earned, fair_seed, passing
from vramlab_classroom.judge.mistakes import Mistake, of
from vramlab_classroom.judge.task import Config, Diagnose, Observation, Predict

ONE = Mistake("You answered 1.", lambda size: 1)
HALF = Mistake("You rounded down.", lambda size: size // 2 * 2)
RIGHT = Mistake("This is no mistake.", lambda size: size)


def task(*mistakes: Mistake, sizes: tuple[int, ...] = (1, 2)) -> Predict:
    return Predict(
        name="size",
        points=1,
        minutes=1,
        visible=({"size": 9},),
        hidden=lambda random: [{"size": random.choice(sizes)} for _ in range(2)],
        measure=lambda size: size,
        mistakes=mistakes,
    )


def measure(case: Config) -> dict[str, Any]:
    return {"arguments": case, "truth": case["size"]}


def test_a_mistake_passes_if_it_is_right_everywhere() -> None:
    assert passing((ONE, HALF), [measure({"size": 1})]) == [ONE]
    assert passing((ONE, HALF), [measure({"size": 1}), measure({"size": 2})]) == []


def test_cases_are_added_for_mistakes_that_pass() -> None:
    for seed in range(100):
        cases = draw(task(ONE, HALF), Random(seed), measure)
        assert {case["size"] for case in cases} == {1, 2}
        assert len(cases) in (2, 3)  # at most one more: two equal ones, and the other


def test_the_first_cases_stay_as_they_were_drawn() -> None:
    plain = list(task().hidden(Random(3)))
    assert draw(task(ONE, HALF), Random(3), measure)[:2] == plain


def test_it_ends_where_nothing_tells_a_mistake() -> None:
    drawn: list[Config] = []

    def note(case: Config) -> dict[str, Any]:
        drawn.append(case)
        return measure(case)

    assert len(draw(task(RIGHT), Random(0), note)) == 2
    assert len(drawn) == 2 + 2 * MOST_DRAWS


def test_a_case_that_is_visible_counts_where_no_other_tells_a_mistake() -> None:
    drawn: list[Config] = []

    def note(case: Config) -> dict[str, Any]:
        drawn.append(case)
        return measure(case)

    nine = Mistake("You forgot 9.", lambda size: size % 9)
    nines = replace(task(nine), hidden=lambda random: [{"size": 1}, {"size": 9}])
    assert draw(nines, Random(0), note) == [{"size": 1}, {"size": 9}]
    assert len(drawn) == 2
    assert draw(replace(nines, mistakes=(ONE,)), Random(0), note) == [{"size": 1}, {"size": 9}]


def test_a_value_has_no_hidden_cases() -> None:
    value = Diagnose(
        name="value",
        points=1,
        minutes=1,
        visible=({},),
        observe=lambda: Observation({}, "leak"),
        mistakes=(RIGHT,),
        is_value=True,
    )
    assert draw(value, Random(0), measure) == []


def test_a_mistake_earns_what_it_earns_with_most_seeds() -> None:
    """Four sizes of 1 to 4: rounding down is right for 2 and 4, which are two of four mostly."""
    even = replace(
        task(),
        points=4,
        visible=({"size": 2}, {"size": 3}),
        hidden=lambda random: [{"size": random.randrange(4, 8)} for _ in range(4)],
        mistakes=of(lambda size, step=1: size // step * step, ("You rounded down.", {"step": 2})),
    )
    assert {earned(even, f"{seed}")[0] for seed in range(50)} > {2}
    assert {earned(even, fair_seed(even, f"{seed}"))[0] for seed in range(50)} == {2}
    # What most seeds give, stays as it is; and without a reference answer, all do.
    assert sum(fair_seed(even, f"{seed}") == f"{seed}" for seed in range(50)) > 10
    assert fair_seed(task(HALF), "3") == "3"
