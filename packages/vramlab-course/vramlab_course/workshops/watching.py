"""Draw a learner's own run: what it did, what it held, and what is above the target."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any

from vramlab.errors import VramlabError
from vramlab_classroom.judge.exercises import find_exercise
from vramlab_classroom.judge.task import Workshop
from vramlab_course.plots.lanes import draw_lanes
from vramlab_course.plots.picture import Picture
from vramlab_course.tasks.building import Building


class NothingToWatch(VramlabError):
    """A learner has not written what is to be watched."""

    def _render_traceback_(self) -> list[str]:
        """Give IPython what to do, and no lines of this package."""
        return [str(self)]


def watch(exercise: str, answer: Callable[..., Any], case: int = 0) -> Picture:
    """Run what a learner has built on a visible case, and draw the run.

    It runs as it is judged, on a virtual GPU, but here and without limits: nothing is graded.

    Args:
        exercise: name of the workshop, such as "workshop_f_chunked_cross_entropy", or its letter.
        answer: the function or class; its name is the task's.
        case: number of the visible case, from 0.

    Raises:
        VramlabError: no task of the workshop has the name, or there is no such case.
        NothingToWatch: nothing is written yet.
        NotFixed: it gives nothing that could be looked at; the message says why.
        Exception: whatever the answer raises, with the traceback from its own line on.
    """
    found = find_exercise(exercise)
    name = getattr(answer, "__name__", repr(answer))
    task = next((each for each in found.tasks if each.name == name), None)
    if not isinstance(task, Workshop) or not isinstance(task.trial, Building):
        known = ", ".join(each.name for each in found.tasks if isinstance(each, Workshop))
        raise VramlabError(f"{found.name} asks for {known or 'nothing to build'}, not for {name}")
    if not 0 <= case < len(task.visible):
        raise VramlabError(
            f"{name} has {len(task.visible)} cases to watch: 0 to "
            f"{len(task.visible) - 1}, not {case}"
        )
    try:
        run = task.trial.watch(answer, task.visible[case])
    except NotImplementedError:
        raise NothingToWatch(
            f"There is nothing to watch yet: {name} raises NotImplementedError. Write your answer "
            "into the cell above, run it, and watch again"
        ) from None
    except Exception as error:
        trace = _since(answer.__module__, error.__traceback__)
        raise error.with_traceback(trace) from error.__cause__
    return draw_lanes(task.trial.picture(name, run))


def _since(module: str, trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from a module's first line on: how the answer was called is left out."""
    while trace is not None and trace.tb_frame.f_globals.get("__name__") != module:
        trace = trace.tb_next
    return trace
