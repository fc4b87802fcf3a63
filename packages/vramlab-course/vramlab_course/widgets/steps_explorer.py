"""Explore when recorded steps compute and communicate, at other rates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated

from vramlab import catalogue
from vramlab.measure.step_events import StepEvent
from vramlab.measure.step_times import Rates, put_in_time
from vramlab_course.plots.durations import short_time
from vramlab_course.plots.steps import draw_steps
from vramlab_course.widgets.controls import slider
from vramlab_course.widgets.explorer import View, explorer
from vramlab_course.widgets.gpus import AnyGPU

Steps = Annotated[Mapping[str, Sequence[StepEvent]], "what `record_events` gives, by name"]


@explorer("When does the GPU compute, and when does it wait?", height_px=760)
def steps_explorer(
    steps: Steps,
    gpu: AnyGPU = "A100-40GB",
    matmul: Annotated[int, slider("% of peak FLOP/s", 10, 100)] = 80,
    link: Annotated[int, slider("GB/s between GPUs", 1, 900)] = 300,
) -> View:
    """Show steps in time, and what is allocated meanwhile; nothing runs again.

    Links reach 80 % of their bandwidth.
    """
    rates = Rates(catalogue.find(gpu), link * 1e9, matmul / 100)
    timed = {name: put_in_time([events], rates)[0] for name, events in steps.items()}
    took = ", ".join(
        f"{name + ': ' if name else ''}{short_time(step.end_s)}" for name, step in timed.items()
    )
    return View(f"Time of a step: {took}.", draw_steps(timed, rates))
