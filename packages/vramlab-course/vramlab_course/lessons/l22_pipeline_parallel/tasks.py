"""Exercise 22: who waits in a pipeline, what its ranks hold, and where to cut a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

from vramlab.cuda_rules.sizes import block_bytes
from vramlab.programs.pipeline_schedules import plan
from vramlab.units import MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.mistakes import Mistake, instead, of
from vramlab_classroom.judge.task import (
    Config,
    Diagnose,
    Exercise,
    Fix,
    NotFixed,
    Observation,
    Predict,
)
from vramlab_course.lessons.l22_pipeline_parallel.formulas import Pipeline, cut, even_stages
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.repair import Repair, Run
from vramlab_course.tasks.results import is_one_of, whole

A100 = GPU("A100-40GB")
OLD_A100 = GPU("A100-40GB", torch_version="1.13")
"""With the rules of a PyTorch under which cuBLAS takes nothing of the allocator: what is left is
the pipeline's."""


# fewest_micro_batches: so that ranks wait for no more than a share of the time


def _measure_fewest(ranks: int, most_percent: int) -> int:
    micro_batches = 1
    while plan("1F1B", ranks, micro_batches).bubble * 100 > most_percent:
        micro_batches += 1
    return micro_batches


def _fewest(
    ranks: int,
    most_percent: int,
    *,
    own: bool = False,
    of_work: bool = False,
    round_up: bool = True,
    least: int = 1,
) -> int:
    """Return the answer or a mistaken one: a rank waits for its `own` micro-batch, too, or at most
    a fraction of the work."""
    waits = (ranks if own else ranks - 1) * (100 if of_work else 100 - most_percent)
    return max(least, -(-waits // most_percent) if round_up else waits // most_percent)


FEWEST = Predict(
    name="fewest_micro_batches",
    points=3,
    minutes=15,
    visible=(
        {"ranks": 4, "most_percent": 20},  # 3 of 15
        {"ranks": 4, "most_percent": 19},
        {"ranks": 4, "most_percent": 75},
        {"ranks": 8, "most_percent": 30},
        {"ranks": 1, "most_percent": 5},
    ),
    hidden=lambda random: [
        {"ranks": 5, "most_percent": 20},
        {"ranks": 1, "most_percent": 10},
        *(
            {"ranks": random.randrange(2, 9), "most_percent": random.randrange(*percent)}
            for percent in ((6, 50), (52, 90))  # more micro-batches than ranks, and fewer
            for _ in range(3)
        ),
    ],
    measure=_measure_fewest,
    mistakes=of(
        _fewest,
        (
            "You divided the idle time by the work. The pipeline bubble is a fraction of the "
            "whole time: work and idle time together.",
            {"of_work": True},
        ),
        (
            "You let every rank wait for as many micro-batches as there are ranks. It does not "
            "wait for its own.",
            {"own": True},
        ),
        (
            "You rounded down. With one micro-batch fewer than needed, the bubble is too large.",
            {"round_up": False},
        ),
        (
            "You answered 0 for a single rank. It never waits, but it still trains on the batch, "
            "as one micro-batch.",
            {"least": 0},
        ),
    ),
)


# kept_bytes: what micro-batches in flight keep


def _growth_bytes(pipeline: Pipeline, rank: int) -> int:
    """From the first forward pass of a step until its first backward pass, on one rank alone."""
    from vramlab.programs.alone import alone
    from vramlab_course.lessons.l22_pipeline_parallel.pipeline_stage import LoneStage

    readings: dict[str, int] = {}

    def read_before(stage: Any, name: str) -> None:
        work = getattr(stage, name)

        def read_first(*args: Any, **kwargs: Any) -> Any:
            readings.setdefault(name, torch.cuda.memory_allocated())
            return work(*args, **kwargs)

        setattr(stage, name, read_first)

    with alone(pipeline.ranks, rank):
        lone = LoneStage(pipeline.stage(rank))
        for name in ("forward_one_chunk", "backward_one_chunk"):
            read_before(lone.schedule._stage, name)
        lone.step()
        del lone
    return readings["backward_one_chunk"] - readings["forward_one_chunk"]


def _pipeline(
    schedule: Any,
    ranks: int,
    micro_batches: int,
    rows: int,
    width: int,
    layers: int,
    checkpointed: bool,
) -> Pipeline:
    stages = even_stages(layers * ranks, width, ranks)
    return Pipeline(schedule, rows, micro_batches, stages, checkpointed)


def _measure_kept(rank: int, **pipeline: Any) -> int:
    return _growth_bytes(_pipeline(**pipeline), rank)


def _kept(
    schedule: str,
    ranks: int,
    rank: int,
    micro_batches: int,
    rows: int,
    width: int,
    layers: int,
    checkpointed: bool,
    *,
    in_flight: Callable[[int, int], int] = lambda ranks, rank: ranks - rank,
    inputs: int = 0,
    loss_bytes: int = 512,
    block: Callable[[int], int] = block_bytes,
) -> int:
    """Return the answer or a mistaken one: how many micro-batches 1F1B has `in_flight`, and what
    each of them saves."""
    flying = micro_batches if schedule == "GPipe" else in_flight(ranks, rank)
    tensors = inputs + (1 if checkpointed else layers)
    return flying * (tensors * block(4 * rows * width) + loss_bytes * (rank == ranks - 1))


def _case(
    schedule: str,
    rank: int,
    *,
    ranks: int = 4,
    micro_batches: int = 8,
    rows: int = 64,
    width: int = 256,
    layers: int = 3,
    checkpointed: bool = False,
) -> Config:
    return {
        "schedule": schedule,
        "ranks": ranks,
        "rank": rank,
        "micro_batches": micro_batches,
        "rows": rows,
        "width": width,
        "layers": layers,
        "checkpointed": checkpointed,
    }


def _hidden_kept(random: Random) -> list[Config]:
    cases = []
    for schedule, is_last, checkpointed in (
        ("GPipe", False, False),
        ("GPipe", True, True),
        ("1F1B", False, False),
        ("1F1B", True, False),
        ("1F1B", False, True),
    ):
        ranks = random.randrange(3, 6)
        cases.append(
            _case(
                schedule,
                ranks - 1 if is_last else random.randrange(ranks - 1),
                ranks=ranks,
                micro_batches=ranks + random.randrange(1, 4),
                rows=random.randrange(5, 80),
                width=random.randrange(20, 300),
                layers=random.randrange(2, 5),
                checkpointed=checkpointed,
            )
        )
    return cases


KEPT = Predict(
    name="kept_bytes",
    points=4,
    minutes=20,
    visible=(
        _case("GPipe", 0),
        _case("1F1B", 0),
        _case("1F1B", 2),
        _case("1F1B", 3),
        _case("GPipe", 3),
        _case("1F1B", 1, rows=10, width=33),
        _case("1F1B", 1, checkpointed=True),
    ),
    hidden=_hidden_kept,
    measure=_measure_kept,
    gpu=OLD_A100,
    mistakes=of(
        _kept,
        (
            "You kept the activations of all micro-batches with 1F1B. A rank starts a backward "
            "pass as soon as the first gradient can arrive.",
            {"schedule": "GPipe"},
        ),
        (
            "You let every rank have as many micro-batches in flight as there are ranks. The "
            "later the rank, the sooner its first micro-batch comes back.",
            {"in_flight": lambda ranks, rank: ranks},
        ),
        (
            "You counted the ranks before instead of the ranks after. The last rank runs backward "
            "right after its first forward pass.",
            {"in_flight": lambda ranks, rank: rank + 1},
        ),
        (
            "You counted the activations of all layers despite checkpointing. What stays is the "
            "stage's output, which is sent.",
            {"checkpointed": False},
        ),
        (
            "You counted the stage's input, too. Its receive buffer was allocated before the "
            "first forward pass.",
            {"inputs": 1},
        ),
        (
            "You left out the losses: the last rank has one per micro-batch.",
            {"loss_bytes": 0},
        ),
        ("You left out the rounding: block sizes are multiples of 512 bytes.", {"block": int}),
    ),
)


# which_schedule: told from what each rank keeps

ANSWERS = ("GPipe", "GPipe, checkpointed", "1F1B", "1F1B, checkpointed")


def _observe_schedule(
    answer: str, ranks: int, micro_batches: int, width: int, layers: int
) -> Observation:
    """Read the growth until the first backward pass on every rank.

    Args:
        answer: one of `ANSWERS`.
        ranks: of the pipeline; two or more.
        micro_batches: of a step; more than ranks.
        width: of the layers; a micro-batch has 32 rows.
        layers: of each rank; two or more.
    """
    schedule, _, checkpointed = answer.partition(", ")
    pipeline = _pipeline(schedule, ranks, micro_batches, 32, width, layers, bool(checkpointed))
    growth_bytes = []
    for rank in range(ranks):
        with OLD_A100.attached():
            growth_bytes.append(_growth_bytes(pipeline, rank))
    evidence = {
        "growth_bytes": growth_bytes,
        "output_bytes": 4 * 32 * width,
        "layers": layers,
        "micro_batches": micro_batches,
    }
    return Observation(evidence, answer)


def _first_rank(
    growth_bytes: Sequence[int], output_bytes: int, layers: int, micro_batches: int
) -> str:
    """By the first rank alone, taking the first explanation that fits."""
    ranks = len(growth_bytes)
    kept = {
        "1F1B": ranks * layers,
        "GPipe": micro_batches * layers,
        "1F1B, checkpointed": ranks,
        "GPipe, checkpointed": micro_batches,
    }
    outputs = growth_bytes[0] // output_bytes
    return next((answer for answer, count in kept.items() if count == outputs), "GPipe")


def _schedule(
    growth_bytes: Sequence[int], output_bytes: int, layers: int, micro_batches: int
) -> str:
    """Return the answer: for naming mistakes, not for grading."""
    is_gpipe = growth_bytes[-1] >= growth_bytes[0]
    in_flight = micro_batches if is_gpipe else len(growth_bytes)
    checkpointed = ", checkpointed" if growth_bytes[0] == in_flight * output_bytes else ""
    return ("GPipe" if is_gpipe else "1F1B") + checkpointed


WHICH = Diagnose(
    name="which_schedule",
    points=3,
    minutes=15,
    rule=lambda answer, **_: answer,  # who tells two things apart understands half
    visible=(
        {"answer": "GPipe", "ranks": 4, "micro_batches": 6, "width": 256, "layers": 2},
        {"answer": "1F1B", "ranks": 4, "micro_batches": 6, "width": 256, "layers": 2},
        # as much on the first rank as 1F1B keeps there
        {
            "answer": "GPipe, checkpointed",
            "ranks": 3,
            "micro_batches": 6,
            "width": 128,
            "layers": 2,
        },
        {"answer": "1F1B, checkpointed", "ranks": 3, "micro_batches": 5, "width": 128, "layers": 4},
    ),
    hidden=lambda random: [
        {"answer": "GPipe, checkpointed", "ranks": 2, "micro_batches": 6, "width": 64, "layers": 3},
        *(
            {
                "answer": answer,
                "ranks": random.randrange(2, 5),
                "micro_batches": random.randrange(5, 9),
                "width": 4 * random.randrange(8, 64),
                "layers": random.choice((2, 4)),
            }
            for answer in ANSWERS
        ),
    ],
    observe=_observe_schedule,
    mistakes=(
        Mistake(
            "You looked only at the first rank. GPipe with checkpointing can save as much there "
            "as 1F1B without it. Compare the ranks with each other.",
            _first_rank,
        ),
        Mistake(
            "You found the schedule by comparing the ranks, but did not look at how much a "
            "micro-batch saves.",
            lambda **evidence: _schedule(**evidence).removesuffix(", checkpointed"),
        ),
        Mistake(
            "You swapped GPipe and 1F1B. With GPipe, all ranks have equally many micro-batches in "
            "flight.",
            instead(_schedule, dict(zip(ANSWERS, (*ANSWERS[2:], *ANSWERS[:2]), strict=True))),
        ),
    ),
)


# choice: a schedule, micro-batches and a cut that fit, and wait for least

RANKS = 4
BATCH = 8192
WIDTHS = (1024,) * 25 + (8192,)
"""24 layers, and a head as long as 8 of them."""
LIMIT_BYTES = 181 * MIB
"""What every GPU may use."""
MICRO_BATCHES = (8, 16, 32)
"""More would make them too small for a GPU."""
GOOD = {"schedule": "1F1B", "micro_batches": 32, "layers": [7, 8, 9, 1]}
"""Fits, and its ranks wait for the least time of all choices that do; a test tries them all."""
MORE_BY = 0.01
"""Choices that wait for 1 % of the time more than the good one are as good."""


def _share_of_waiting(chosen: Mapping[str, Any]) -> float:
    """In time that is counted in layers of 1024: the head is as long as 8 of them."""
    slots = [
        sum(inputs * outputs for inputs, outputs in pairwise(widths)) // 1024**2
        for widths in cut(WIDTHS, chosen["layers"])
    ]
    whole = plan(chosen["schedule"], RANKS, chosen["micro_batches"], forward_slots=slots)
    return float(whole.bubble)


def _checked(answer: Any) -> Mapping[str, Any]:
    if not isinstance(answer, dict) or answer.keys() != GOOD.keys():
        raise NotFixed(f"It has to be a dict with the keys {', '.join(GOOD)}.")
    if not is_one_of(answer["schedule"], ("GPipe", "1F1B")):
        raise NotFixed(f"schedule is {answer['schedule']!r}; it can be 'GPipe' or '1F1B'.")
    if (micro_batches := whole(answer["micro_batches"])) not in MICRO_BATCHES:
        known = ", ".join(map(str, MICRO_BATCHES))
        raise NotFixed(f"micro_batches is {answer['micro_batches']!r}; it can be {known}.")
    layers = answer["layers"]
    lengths = [whole(each) or 0 for each in layers] if isinstance(layers, list | tuple) else []
    if len(lengths) != RANKS or min(lengths) < 1 or sum(lengths) != len(WIDTHS) - 1:
        raise NotFixed(
            f"layers is {layers!r}; it has to be {RANKS} numbers, each 1 at least, that add up to "
            f"{len(WIDTHS) - 1}: the layers and the head."
        )
    return {**answer, "layers": lengths, "micro_batches": micro_batches}


def _peaks_of_ranks(run: Run) -> list[int]:
    from vramlab_course.lessons.l22_pipeline_parallel.experiment import read_stage

    micro_batches = run.program["micro_batches"]
    stages = cut(WIDTHS, run.program["layers"])
    pipeline = Pipeline(run.program["schedule"], BATCH // micro_batches, micro_batches, stages)
    peaks_bytes = []
    for rank in range(RANKS):
        with A100.attached():
            peaks_bytes.append(read_stage(pipeline, rank).peak_bytes)
    return peaks_bytes


def _who_takes_more(run: Run) -> str:
    return (
        f"With a limit of {format_bytes(run.limit_bytes)}, rank "
        f"{run.results.index(run.peak_bytes)} takes {format_bytes(run.peak_bytes)}."
    )


def _waits_little(run: Run, expected: object) -> None:
    waits, least = _share_of_waiting(run.program), _share_of_waiting(GOOD)
    if waits > least + MORE_BY:
        raise NotFixed(
            f"It fits, but the bubble is {waits:.1%} of the time; another choice that fits has "
            f"{least:.1%}. Which rank do the others wait for, and how often is the pipeline "
            "filled and drained?"
        )


CHOOSE = Fix(
    name="choice",
    points=4,
    minutes=25,
    visible=({},),
    hidden=lambda random: [{}],
    trial=Repair(
        gpu=A100,
        accept=_checked,
        call=_peaks_of_ranks,
        limit=lambda own: LIMIT_BYTES,
        peak=lambda run: max(run.results),
        ran_out=_who_takes_more,
        compare=_waits_little,
        report=lambda run: f"{run.peak_report}, waits {_share_of_waiting(run.program):.1%}",
    ),
    is_value=True,
)

EXERCISE = Exercise(
    name="22_pipeline_parallel",
    module=__name__,
    tasks=(FEWEST, KEPT, WHICH, CHOOSE),
    core=("fewest_micro_batches", "kept_bytes"),
)
