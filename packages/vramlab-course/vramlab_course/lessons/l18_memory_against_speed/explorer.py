"""Explore methods that trade memory against time, one on top of the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Annotated, Any

from vramlab import VirtualGPU
from vramlab.measure import Table
from vramlab.units import format_mib, short_size
from vramlab_course.lessons.l18_memory_against_speed.experiment import (
    OPTIMIZERS,
    MethodReading,
    Setting,
    read_step,
)
from vramlab_course.lessons.l18_memory_against_speed.trades_picture import Trade, draw_trades
from vramlab_course.plots.durations import short_time
from vramlab_course.widgets.controls import checkboxes, choice, powers
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import TensorCoreGPU

ON = {
    "accumulation": "Accumulate (4 parts)",
    "checkpointing": "Checkpoint blocks",
    "autocast": "Mixed precision",
}
"""Methods that are on or off, and what their boxes say."""


@explorer("Memory against time", first=("gpu",))
def methods_explorer(
    batch: Annotated[int, powers("Sequences", 4, 64), "sequences in a step"] = 16,
    optimizer: Annotated[str, choice("Optimizer", OPTIMIZERS)] = "adamw",
    gpu: TensorCoreGPU = "A100-40GB",
    chosen: Annotated[Sequence[str], checkboxes(ON), "methods that are on"] = ("checkpointing",),
) -> View:
    """Show the peak and the time of a step with methods combined, and with each alone.

    Times are lower bounds, at the catalogue's peak rates.
    """
    plain = _read(gpu, _setting(batch, "adamw", ()))
    readings = {"none of them": plain}
    if optimizer != "adamw":
        readings[optimizer] = _read(gpu, _setting(batch, optimizer, ()))
    for name in chosen:
        readings[ON[name]] = _read(gpu, _setting(batch, "adamw", (name,)))
    if len(readings) > 2:
        readings["all together"] = _read(gpu, _setting(batch, optimizer, chosen))
    last = list(readings.values())[-1]
    summary = (
        f"{list(readings)[-1].capitalize()}: {short_size(last.peak_bytes)} at the peak and at "
        f"least {short_time(last.seconds_per_sequence)} for a sequence; the plain program takes "
        f"{short_size(plain.peak_bytes)} and {short_time(plain.seconds_per_sequence)}."
    )
    trades = {
        name: Trade(reading.peak_bytes, reading.seconds_per_sequence)
        for name, reading in readings.items()
    }
    picture = draw_trades(trades, title=f"A step of {batch} sequences on one {gpu}, at peak rates")
    return View(summary, picture, (_table(readings),))


def _setting(batch: int, optimizer: str, chosen: Sequence[str]) -> Setting:
    return Setting(
        batch,
        micro_batches=4 if "accumulation" in chosen else 1,
        checkpointing="checkpointing" in chosen,
        autocast="autocast" in chosen,
        optimizer=optimizer,
    )


@cache
def _read(gpu: str, setting: Setting) -> MethodReading:
    with VirtualGPU(gpu):
        return read_step(setting)


def _table(readings: Mapping[str, MethodReading]) -> Table:
    rows: list[tuple[Any, ...]] = []
    for name, reading in readings.items():
        needed = reading.needed
        rows.append(
            (
                name,
                format_mib(reading.peak_bytes),
                f"{needed.flops / 1e12:,.3f} T",
                f"{needed.moved_bytes / 1e9:,.2f} GB",
                short_time(needed.seconds),
                f"{needed.memory_bound_seconds / needed.seconds:.0%}",
            )
        )
    return Table(
        "One step",
        ("methods", "peak", "FLOPs", "read and written", "lower bound", "of it memory-bound"),
        tuple(rows),
    )
