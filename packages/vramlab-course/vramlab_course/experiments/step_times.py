"""How long training steps take on a real GPU, as it was recorded, for tables in lessons.

    step_times_table("GPT-2", {"batch of 8": step_time("gpt2", batch=8, precision="bf16")})

A virtual GPU has no time. `h100_step_times.json` is a recording of a real H100: whole training
steps, optimizer included, each the median of five after three that were not counted.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from vramlab.table import Table
from vramlab.units import GIB

RECORDED = Path(__file__).with_name("h100_step_times.json")

CHOICES = {"attention": "sdpa", "checkpoint": False, "accumulate": 1}
"""How a step was run unless a lesson says otherwise."""


@dataclass(frozen=True)
class StepTime:
    """A training step on a real GPU.

    Attributes:
        parameters: of the model.
        tokens: in the whole step.
        milliseconds: of the step; None if memory ran out.
        peak_bytes: allocated at most; None if memory ran out.
    """

    parameters: int
    tokens: int
    milliseconds: float | None
    peak_bytes: int | None

    @property
    def tokens_per_second(self) -> float | None:
        """The throughput."""
        return self.milliseconds and self.tokens / self.milliseconds * 1000


def step_time(model: str, **conditions: Any) -> StepTime:
    """Return the recorded step with these conditions; of two recordings, the later one.

    Args:
        model: gpt2 (124 million parameters), bert-large (335 million) or llama-1b (1.24 billion).
        conditions: batch (of a micro-batch), sequence, precision (float32, tf32, bf16: all in
            bfloat16, or autocast), and what differs from `CHOICES`.

    Raises:
        LookupError: No step, or steps of several kinds, were recorded under these conditions.
    """
    wanted = {"model": model} | CHOICES | conditions
    found = [
        step
        for step in _recording()["steps"]
        if all(step[name] == value for name, value in wanted.items())
    ]
    kinds = {(step["batch"], step["sequence"], step["precision"]) for step in found}
    if len(kinds) != 1:
        raise LookupError(
            f"{len(kinds)} kinds of recorded steps have {wanted}: give more or others"
        )
    step = found[-1]
    tokens = step["batch"] * step["sequence"] * step["accumulate"]
    return StepTime(
        step.get("parameters", 0), tokens, step.get("milliseconds"), step.get("peak_bytes")
    )


def step_times_table(caption: str, steps: Mapping[str, StepTime]) -> Table:
    """Return a table of recorded steps, with the GPU and the PyTorch that took this long.

    Args:
        caption: what the steps have in common.
        steps: by what they are called.
    """
    return Table(
        caption,
        ("", "step", "tokens per second", "peak"),
        tuple(
            (
                name,
                f"{step.milliseconds:,.0f} ms" if step.milliseconds else "out of memory",
                f"{step.tokens_per_second:,.0f}" if step.tokens_per_second else "",
                f"{step.peak_bytes / GIB:.1f} GiB" if step.peak_bytes else "",
            )
            for name, step in steps.items()
        ),
        (f"{conditions()}; median of five steps after three.",),
    )


def rates() -> Mapping[str, float]:
    """Return what the GPU reached in large matrix products and copies, per second, by name."""
    recorded: Mapping[str, float] = _recording()["rates"]
    return recorded


def conditions() -> str:
    """Return the GPU and the PyTorch of the recording."""
    return f"Measured on a real {_recording()['gpu']}, PyTorch {_recording()['torch']}"


@cache
def _recording() -> dict[str, Any]:
    recording: dict[str, Any] = json.loads(RECORDED.read_text(encoding="utf-8"))
    return recording
