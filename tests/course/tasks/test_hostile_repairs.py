"""No cheat earns a point in any `Fix` task; what is asked for does.

Every kind of cheat is tried on every task, in the trial itself.
"""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from repair_programs import (
    CHEATS,
    bound,
    given_source,
    our_own_runs_once,
    remembered,
    repairs,
    small_case,
    solution_source,
)

from vramlab_classroom.judge.task import Exercise, Fix, NotFixed

__all__ = ["our_own_runs_once"]
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("our_own_runs_once")]


def short(exercise: Exercise) -> str:
    """The number of an exercise, or the letter of a workshop."""
    return exercise.name.removeprefix("workshop_").partition("_")[0]


TASKS = {f"{short(exercise)} {task.name}": (exercise, task) for exercise, task in repairs()}

HONEST = {
    # These are called several times in a trial, once for each layer: one as it was given fits.
    ("08 block", "as_given_the_first_time"),
    ("08 quick_gelu", "as_given_the_first_time"),
}
"""Cheats that are none with these tasks."""

CALLED_ONCE = [
    name for name in TASKS if not name.startswith(("08", "20", "30 leaks", "b ", "c ", "d "))
]
"""Programs that give all that there is to remember; one has no results but the model's, and one
tells yes from no, which differs from case to case."""


KEPT_FROM_THE_HOST = ("03 collect", "21 feed_forward", "f mean_loss", "f chunked_loss")
"""What remembers copies weights to the host, which these refuse at once."""


def programs(exercise: Exercise, task: Fix) -> tuple[Any, Any]:
    given = bound(given_source(exercise, task), task.name)
    solved = bound(solution_source(exercise, task), task.name)
    return given, solved


def outcome(task: Fix, program: Any, case: dict[str, Any]) -> str | None:
    """What a program achieved, or None if it is not let pass: by its trial or by its own failure.

    `Exception` is what a job takes for a failure of the answer.
    """
    try:
        return task.trial(program, **case)
    except (NotFixed, Exception):
        return None


@pytest.mark.parametrize("name", TASKS)
def test_the_solution_passes_and_the_program_as_given_does_not(name: str) -> None:
    exercise, task = TASKS[name]
    given, solved = programs(exercise, task)
    case = small_case(exercise, task)
    assert outcome(task, solved, case) is not None
    assert outcome(task, given, case) is None


@pytest.mark.parametrize("kind", CHEATS)
@pytest.mark.parametrize("name", TASKS)
def test_no_cheat_passes(name: str, kind: str) -> None:
    exercise, task = TASKS[name]
    cheat = CHEATS[kind](*programs(exercise, task))
    passes = outcome(task, cheat, small_case(exercise, task)) is not None
    assert passes == ((name, kind) in HONEST)


@pytest.mark.parametrize("name", CALLED_ONCE)
def test_results_that_are_known_do_not_pass(name: str) -> None:
    """The same program computes in the first trial, and gives the same results in the second."""
    exercise, task = TASKS[name]
    cheat = remembered(programs(exercise, task)[1])
    case = small_case(exercise, task)
    passes = outcome(task, cheat, case) is not None
    assert passes == (name not in KEPT_FROM_THE_HOST)
    assert outcome(task, cheat, case) is None


# Cheats of one task


def _rows_past_the_head(model: Any, inputs: torch.Tensor, targets: torch.Tensor) -> None:
    """Small pieces, multiplied with a copy of the head's weight."""
    from torch.utils.checkpoint import checkpoint

    for x, words in zip(inputs.split(64), targets.split(64), strict=True):
        share = len(x) / len(inputs)
        for layer in model.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        weight = model.head.weight.clone()
        logits = torch.nn.functional.linear(x, weight)
        (torch.nn.functional.cross_entropy(logits, words) * share).backward()
        del x, logits, weight


def _layers_twice_by_functions(model: Any, x: torch.Tensor) -> None:
    """Layers are computed again, by functions that no module sees."""
    from torch.utils.checkpoint import checkpoint

    def functions(x: torch.Tensor, *weights: torch.Tensor) -> torch.Tensor:
        for weight in weights:
            x = torch.nn.functional.linear(x, weight).relu()
        return x

    weights = [layer.weight for layer in list(model)[::2]]
    for first in range(0, len(weights), 3):
        x = checkpoint(functions, x, *weights[first : first + 3], use_reentrant=False)
    x.square().mean().backward()


def _memory_alone(model: Any, x: torch.Tensor, labels: torch.Tensor) -> None:
    """All rows on GPU 0, a part at a time, and as much memory on the others as if they worked."""
    held = [torch.empty(9 * 2**20, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in (1, 2, 3)]
    for rows, wanted in zip(x.split(64), labels.split(64), strict=True):
        loss = torch.nn.functional.cross_entropy(model(rows), wanted, reduction="sum")
        (loss / len(x)).backward()
        del loss
    held.clear()


def _one_gpu_by_halves(x: torch.Tensor, up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
    """Both halves on GPU 0, one after the other, and as much memory on the other."""
    halves = list(zip(up.chunk(2, dim=1), down.chunk(2), strict=True))
    held = [torch.empty(34 * 2**20, dtype=torch.uint8, device="cuda:1")]
    result = torch.zeros_like(x)
    for half in halves:
        columns, rows = (matrix.cuda() for matrix in half)
        result = result + torch.nn.functional.gelu(x @ columns) @ rows
        del columns, rows
    held.clear()
    return result


def _fewer_layers(model: Any, shard: Any) -> None:
    model.layers = model.layers[:2]
    shard(model)


def _another_precision(model: Any, shard: Any) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy

    for layer in model.layers:
        shard(layer, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
    shard(model)


def _layers_on_the_host(model: Any, shard: Any) -> None:
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    for layer in model.layers:
        fully_shard(layer, offload_policy=CPUOffloadPolicy())
    shard(model)


def _layers_left_out(model: Any, shard: Any) -> None:
    for layer in model.layers:
        shard(layer)
    shard(model)
    for layer in model.layers:
        layer.forward = lambda x: x


@pytest.mark.parametrize(
    ("name", "program", "says"),
    [
        ("23 backward", _rows_past_the_head, "have been multiplied with the weight of model.head"),
        ("17 train_step", _layers_twice_by_functions, "it recomputes layers"),
        ("19 train_step", _memory_alone, "GPU 1 has computed only 0% of its fraction"),
        ("21 feed_forward", _one_gpu_by_halves, "GPU 1 computes 0% of its half"),
        ("20 shard", _fewer_layers, "has different modules or parameters"),
        ("20 shard", _another_precision, "A precision policy, an offload policy"),
        ("20 shard", _layers_on_the_host, "A precision policy, an offload policy"),
        ("20 shard", _layers_left_out, "A hook, or a forward|no gradient"),
    ],
)
def test_no_cheat_of_a_task_passes(name: str, program: Any, says: str) -> None:
    exercise, task = TASKS[name]
    with pytest.raises(NotFixed) as raised:
        task.trial(program, **small_case(exercise, task))
    assert re.search(says, str(raised.value)), str(raised.value)
