"""Play a checkpointing schedule: which state of a chain is held when, and what that costs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from math import isqrt
from typing import Annotated, Any

import ipywidgets
import torch

from vramlab import VirtualGPU
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing import (
    Do,
    Schedule,
    ScheduleSimulation,
    recompute_all,
    revolve,
    segments,
    simulate,
    store_all,
)
from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.execute import (
    ActionReading,
    execute,
)
from vramlab_course.lessons.l14_gradient_checkpointing.picture import draw_schedule
from vramlab_course.programs.chains import linear_chain, prepared
from vramlab_course.rules import RULES
from vramlab_course.widgets.controls import choice, slider
from vramlab_course.widgets.explorer import Explorer, View, explorer

STRATEGIES: dict[str, Callable[[int, int], Schedule]] = {
    "store all": lambda steps, _: store_all(steps),
    "recompute all": lambda steps, _: recompute_all(steps),
    "sqrt(n) segments": lambda steps, _: segments(steps, isqrt(steps)),
    "segments": lambda steps, slots: segments(steps, min(slots, steps)),
    "Revolve": revolve,
}
"""Schedules by name, from the length of the chain and the number of slots (or segments)."""

WITH_SLOTS = ("segments", "Revolve")
"""The strategies with a number of slots (or segments)."""

GPU = "A100-40GB"
BATCH, WIDTH = 8192, 256
"""A state is (8192, 256) in float32: 8 MiB."""

INTERVAL_MS = 900
"""Between two actions when it plays."""


@dataclass(frozen=True)
class Play:
    """A schedule that has been executed."""

    simulation: ScheduleSimulation
    before_bytes: int
    """Allocated before the first action: parameters, input, workspaces."""
    readings: tuple[ActionReading, ...]
    forwards: int
    """Calls of steps."""

    def held_bytes(self, moment: int) -> int:
        """Return the bytes held after as many actions, beyond what was there before."""
        return self.readings[moment - 1].allocated_bytes - self.before_bytes if moment else 0

    def peak_bytes(self, moment: int) -> int:
        """Return the most bytes that were held until then."""
        peaks = (reading.peak_bytes for reading in self.readings[:moment])
        return max(peaks, default=self.before_bytes) - self.before_bytes

    def forwards_until(self, moment: int) -> int:
        """Count the steps that have run forward until then."""
        done = (reading.action.do for reading in self.readings[:moment])
        return sum(do in (Do.ADVANCE, Do.RECORD) for do in done)


def _length(strategy: str, steps: int, slots: int) -> int:
    return len(STRATEGIES[strategy](steps, slots).actions)


def _add_player(explorer: Explorer) -> None:
    """Let a button play the actions, and show the slots' control for strategies that use them."""
    controls = explorer.controls
    moment, strategy = controls["moment"], controls["strategy"]

    def fit(_change: object = None) -> None:
        controls["slots"].disabled = strategy.value not in WITH_SLOTS

    strategy.observe(fit, names="value")
    fit()
    play = ipywidgets.Play(min=0, max=moment.max, interval=INTERVAL_MS, description="Play")
    ipywidgets.link((moment, "max"), (play, "max"))
    ipywidgets.link((moment, "value"), (play, "value"))
    row: Any = explorer.box.children[1]
    row.children = (*row.children, play)


@explorer("Play a checkpointing schedule", height_px=800, finish=_add_player)
def checkpointing_explorer(
    strategy: Annotated[str, choice("Strategy", STRATEGIES)] = "sqrt(n) segments",
    steps: Annotated[int, slider("Steps of the chain, n", 1, 20)] = 12,
    slots: Annotated[int, slider("Slots (or segments)", 1, 10), "of `WITH_SLOTS`"] = 3,
    moment: Annotated[int, slider("Actions done", 0, _length)] = 0,
) -> View:
    """Play a schedule action by action, as it was executed on a fresh virtual GPU.

    The play button goes on by itself; the slider beside it goes to any action. Steps of the chain
    are Linear layers whose states have 8 MiB.
    """
    play = play_schedule(strategy, steps, slots)
    actions = len(play.readings)
    at = min(moment, actions)
    last = "Before the first action" if at == 0 else f"After {play.readings[at - 1].action}"
    forwards = play.forwards_until(at)
    summary = (
        f"{last}: {forwards} steps have run forward, {short_size(play.held_bytes(at))} are held, "
        f"and at most {short_size(play.peak_bytes(at))} were until now."
    )
    table = Table(
        caption=f"{play.simulation.schedule.name}, executed on a virtual {GPU}; a state has "
        f"{short_size(BATCH * WIDTH * 4)}",
        header=("counter", f"after action {at}", f"at the end, after {actions}"),
        rows=(
            ("steps run forward", str(forwards), f"{play.forwards} (n = {steps})"),
            ("memory held", format_mib(play.held_bytes(at)), format_mib(play.held_bytes(actions))),
            (
                "peak until then",
                format_mib(play.peak_bytes(at)),
                format_mib(play.peak_bytes(actions)),
            ),
        ),
        notes=("Beyond parameters, input and workspaces; gradients of parameters included.",),
    )
    return View(summary, draw_schedule(play.simulation, at=at), (table,))


@lru_cache(maxsize=32)
def play_schedule(strategy: str, steps: int, slots: int) -> Play:
    """Execute a schedule on a fresh virtual GPU."""
    schedule = STRATEGIES[strategy](steps, slots)
    with VirtualGPU(GPU, torch_version=RULES):
        x = torch.zeros(BATCH, WIDTH, device="cuda")
        chain = prepared(linear_chain(steps, WIDTH), x)
        before_bytes = torch.cuda.memory_allocated()
        execution = execute(schedule, chain, x, torch.sum, readings=True)
        del chain, x
    return Play(simulate(schedule), before_bytes, execution.readings, execution.forwards)
