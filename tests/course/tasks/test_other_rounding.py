"""A right answer passes whatever its sums round to: here each is as exact as float32 can be."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
from repair_programs import our_own_runs_once, repairs, small_case, solution_source

from vramlab.gpu.core.dispatcher import Dispatcher
from vramlab.gpu.torch_internals import OpOverload, disable_current_modes
from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.task import Exercise, Fix
from vramlab_course.tasks.repair import Repair

__all__ = ["our_own_runs_once"]
pytestmark = [pytest.mark.long, pytest.mark.usefixtures("our_own_runs_once")]

ROUNDS = re.compile("mm|mv|dot|sum|mean|norm|softmax|logsumexp|var|exp|tanh|gelu|sigmoid|silu|sqrt")
"""Parts of the names of operators that round more than once, or as the machine's library does."""

REPAIRS = [
    pytest.param(exercise, task, id=f"{exercise.name[:10]}-{task.name}")
    for exercise, task in repairs()
    if isinstance(task.trial, Repair)
]


def in_float64(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.dtype == torch.float32:
        return value.detach().double()
    if isinstance(value, list | tuple):
        return type(value)(map(in_float64, value))
    return torch.float64 if value is torch.float32 else value


def in_float32(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(in_float32, value))
    return value.float() if getattr(value, "dtype", None) == torch.float64 else value


def compute_exactly(
    self: Dispatcher, func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Compute in float64, and round once."""
    name = str(func).split(".")[1]
    has_float64 = any(getattr(each, "dtype", None) == torch.float64 for each in args)
    is_new = all(each.alias_info is None for each in func._schema.returns)
    if has_float64 or not is_new or "foreach" in name or not ROUNDS.search(name):
        return func(*args, **kwargs)
    with disable_current_modes():
        exact = {key: in_float64(value) for key, value in kwargs.items()}
        return in_float32(func(*in_float64(tuple(args)), **exact))


@pytest.mark.parametrize(("exercise", "task"), REPAIRS)
def test_exact_sums_pass(exercise: Exercise, task: Fix, monkeypatch: pytest.MonkeyPatch) -> None:
    case = small_case(exercise, task)
    task.trial.prepare(**case)  # type: ignore[attr-defined]
    monkeypatch.setattr(Dispatcher, "compute", compute_exactly)
    reply = jobs._trial(task, solution_source(exercise, task), case)
    assert "achieved" in reply, reply
