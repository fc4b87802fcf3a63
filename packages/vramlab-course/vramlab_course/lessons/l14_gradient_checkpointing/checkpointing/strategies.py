"""Schedules for a chain: store all, recompute all, segments, and Revolve's optimum.

Sources: Chen et al., arXiv 1604.06174 §4 for segments; Griewank and Walther, Algorithm 799 (ACM
TOMS 26, 2000) for Revolve. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import comb

from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.schedule import (
    Action,
    Do,
    Schedule,
)


def store_all(steps: int) -> Schedule:
    """Record every step as it runs, as training does without checkpointing."""
    _require_positive("steps", steps)
    actions = [Action(Do.RECORD, i) for i in range(steps)]
    return Schedule("store all", steps, (*actions, *_back(0, steps)))


def recompute_all(steps: int) -> Schedule:
    """Keep the input alone, and come from there to every step: n (n - 1) / 2 steps more."""
    schedule = revolve(steps, 1)
    return Schedule("recompute all", steps, schedule.actions)


def segments(steps: int, count: int) -> Schedule:
    """Store the state before each segment, and run a segment again when its turn to go back comes.

    The last segment is recorded at once: it is not run again. Segments are cut as
    torch.utils.checkpoint.checkpoint_sequential cuts them: all have steps // count steps, and the
    last has the rest as well.

    Args:
        steps: length of the chain.
        count: how many segments, 1 to `steps`.
    """
    _require_positive("steps", steps)
    if not 1 <= count <= steps:
        raise ValueError(f"a chain of {steps} steps has 1 to {steps} segments, not {count}")
    length = steps // count
    starts = [length * number for number in range(count)]
    actions: list[Action] = []
    for start in starts[:-1]:
        actions.append(Action(Do.STORE, start))
        actions += [Action(Do.ADVANCE, i) for i in range(start, start + length)]
    actions += [Action(Do.RECORD, i) for i in range(starts[-1], steps)]
    actions += _back(starts[-1], steps)
    for start in reversed(starts[:-1]):
        actions += [Action(Do.RESTORE, start), Action(Do.FREE, start)]
        actions += [Action(Do.RECORD, i) for i in range(start, start + length)]
        actions += _back(start, start + length)
    name = "1 segment" if count == 1 else f"{count} segments"
    return Schedule(name, steps, tuple(actions))


def revolve(steps: int, slots: int) -> Schedule:
    """Go back through a chain with the fewest advances that `slots` stored states allow.

    One step at a time is recorded. State 0 takes one of the slots.

    Args:
        steps: length of the chain.
        slots: states that may be stored at once; 1 or more.
    """
    _require_positive("steps", steps)
    _require_positive("slots", slots)
    actions = [Action(Do.STORE, 0), *_revolve(0, steps, slots), Action(Do.FREE, 0)]
    name = f"Revolve, {slots} slots" if slots > 1 else "Revolve, 1 slot"
    return Schedule(name, steps, tuple(actions))


def binomial(slots: int, times: int) -> int:
    """Count the steps of the longest chain that `slots` slots reverse.

    No step is advanced more than `times` times: C(slots + times, slots); 0 where `times` is
    negative.
    """
    return comb(slots + times, slots) if times >= 0 else 0


def revolve_advances(steps: int, slots: int) -> int:
    """Count the advances that Revolve needs: no schedule with as many slots takes fewer.

    r n - C(slots + r, slots + 1), with r the smallest number for which C(slots + r, slots) >= n:
    no step is advanced more than r times. The n steps that are recorded come on top.
    """
    _require_positive("steps", steps)
    _require_positive("slots", slots)
    times = _times(steps, slots)
    return times * steps - binomial(slots + 1, times - 1)


def _times(steps: int, slots: int) -> int:
    times = 0
    while binomial(slots, times) < steps:
        times += 1
    return times


def _revolve(first: int, last: int, slots: int) -> Iterator[Action]:
    """Go back through steps first to last - 1. State `first` is current, and stored in a slot."""
    length = last - first
    if length == 1:
        yield Action(Do.RECORD, first)
        yield Action(Do.BACKWARD, first)
        return
    if slots == 1:
        for step in reversed(range(first, last)):
            if step < last - 1:
                yield Action(Do.RESTORE, first)
            yield from (Action(Do.ADVANCE, i) for i in range(first, step))
            yield Action(Do.RECORD, step)
            yield Action(Do.BACKWARD, step)
        return
    # Both parts must be reversible with as few repetitions as the whole allows: the second with a
    # slot less and r repetitions, the first with r - 1.
    times = _times(length, slots)
    middle = first + max(1, binomial(slots, times - 2), length - binomial(slots - 1, times))
    yield from (Action(Do.ADVANCE, i) for i in range(first, middle))
    yield Action(Do.STORE, middle)
    yield from _revolve(middle, last, slots - 1)
    yield Action(Do.FREE, middle)
    yield Action(Do.RESTORE, first)
    yield from _revolve(first, middle, slots)


def _back(first: int, last: int) -> list[Action]:
    return [Action(Do.BACKWARD, i) for i in reversed(range(first, last))]


def _require_positive(what: str, number: int) -> None:
    if number < 1:
        raise ValueError(f"{what} is 1 or more, not {number}")
