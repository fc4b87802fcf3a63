"""An exercise for which the language of answers has a hole the size of Python.

A pool imports this module in the fork that does a job, so it is broken there and nowhere else. In
the process of the tests, `EXERCISE` says what to ask for, and nothing is broken.
"""

from __future__ import annotations

import sys
from typing import Any

import escapes

from vramlab_classroom.judge import jobs
from vramlab_classroom.judge.task import Exercise, Fix, Predict
from vramlab_classroom.judge.vocabulary import OWN_MODULE

TRUTH = 42


def _plain_exec(source: str, vocabulary: object) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": OWN_MODULE}
    exec(source, namespace)
    return namespace


def _measure(name: str = "", **arguments: Any) -> int | str:
    """Give the truth, or what an escape gives that runs as the package's own code."""
    return getattr(escapes, name)(**arguments) if name else TRUTH


if getattr(sys.modules["__main__"], "__file__", "").endswith("job_server.py"):
    jobs.load = _plain_exec  # type: ignore[assignment]

EXERCISE = Exercise(
    name="broken",
    module=__name__,
    tasks=(
        Predict(
            name="answer",
            points=1,
            minutes=1,
            visible=({},),
            hidden=lambda random: [],
            measure=_measure,
            mistakes=(),
        ),
        Fix(
            name="program",
            points=1,
            minutes=1,
            visible=({},),
            hidden=lambda random: [],
            trial=lambda answer, **config: f"{answer(**config)}",
            is_value=True,  # without the vocabulary that needs torch
        ),
    ),
)
