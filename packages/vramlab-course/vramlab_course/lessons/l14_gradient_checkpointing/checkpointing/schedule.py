"""What a checkpointing schedule may do, and a simulator that checks it and says what is held when.

A chain has n steps, 0 to n - 1, and n + 1 states: step i makes state i + 1 of state i. State 0 is
the input, state n goes into the loss. The backward pass goes through the steps from the last to the
first. Going back through step i needs what step i *recorded* when it ran forward (state i, and what
is inside of the step), and the gradient of state i + 1; it makes the gradient of state i.

The vocabulary is that of Griewank and Walther, Algorithm 799 (ACM TOMS 26, 2000), where TAKESHOT is
`STORE` and YOUTURN a `RECORD` with its `BACKWARD`. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from vramlab.errors import VramlabError


class InvalidSchedule(VramlabError, ValueError):
    """A schedule asks for what is not there, or leaves something undone."""


class Do(Enum):
    """The kinds of actions. `i` is the index of a step or of a state."""

    STORE = "store"
    """Keep state i, the current one, in a slot."""
    ADVANCE = "advance"
    """Run step i forward, and keep nothing for going back."""
    RECORD = "record"
    """Run step i forward, and keep what going back through it needs."""
    RESTORE = "restore"
    """Go back to state i, which is stored."""
    BACKWARD = "backward"
    """Go back through step i, and let go of what it recorded."""
    FREE = "free"
    """Let go of the stored state i."""


@dataclass(frozen=True)
class Action:
    """One action of a schedule."""

    do: Do
    """What is done."""
    index: int
    """Of the step (ADVANCE, RECORD, BACKWARD) or of the state (STORE, RESTORE, FREE)."""

    def __str__(self) -> str:
        return f"{self.do.value} {self.index}"


@dataclass(frozen=True)
class Schedule:
    """What to do, in order, for one training step over a chain."""

    name: str
    """What the strategy is called, such as '4 segments'."""
    steps: int
    """Length of the chain, n."""
    actions: tuple[Action, ...]
    """From state 0, the input, as the current one, to the gradient of state 0."""


@dataclass(frozen=True)
class ScheduleMoment:
    """What is held after an action."""

    action: Action | None
    """The action; None before the first."""
    current: int | None
    """The state that the forward pass stands at; None when it has none."""
    stored: frozenset[int]
    """States in slots."""
    recorded: frozenset[int]
    """Steps that have recorded what going back needs; each holds the state of its own index."""
    gradient: int | None
    """The state whose gradient is there; None before the loss."""
    forwards: int
    """Steps that have run forward until now, recorded or not."""

    @property
    def states(self) -> frozenset[int]:
        """States that are held, for whichever reason; each once."""
        current = frozenset() if self.current is None else frozenset({self.current})
        return self.stored | self.recorded | current


@dataclass(frozen=True)
class ScheduleSimulation:
    """What a schedule holds and does, action by action."""

    schedule: Schedule
    moments: tuple[ScheduleMoment, ...]
    """Before the first action, and after each."""

    @property
    def forwards(self) -> int:
        """Steps that run forward in all. Without any recomputation it is n."""
        return self.moments[-1].forwards

    @property
    def recomputed(self) -> int:
        """Steps that run forward more often than once, each time more counted."""
        return self.forwards - self.schedule.steps

    @property
    def most_states(self) -> int:
        """States held at once, while an action runs: an advance has its old and its new state."""
        return max(
            len(before.states | after.states)
            if after.action is not None and after.action.do in (Do.ADVANCE, Do.RECORD)
            else len(after.states)
            for before, after in self.pairs()
        )

    def pairs(self) -> Iterator[tuple[ScheduleMoment, ScheduleMoment]]:
        """Give, for each action, the moments before and after it."""
        return zip(self.moments, self.moments[1:], strict=False)


def simulate(schedule: Schedule) -> ScheduleSimulation:
    """Go through a schedule without computing anything.

    Raises:
        InvalidSchedule: an action asks for a state or a recording that does not exist, or something
            is left undone; the message says which action.
    """
    moment = ScheduleMoment(None, 0, frozenset(), frozenset(), None, 0)
    moments = [moment]
    for number, action in enumerate(schedule.actions):
        try:
            moment = _after(moment, action, schedule.steps)
        except InvalidSchedule as error:
            raise InvalidSchedule(
                f"action {number} of {schedule.name!r}, {action}: {error}"
            ) from None
        moments.append(moment)
    if moment.gradient != 0:
        raise InvalidSchedule(
            f"{schedule.name!r} ends with the gradient of state {moment.gradient}; the backward "
            "pass has to arrive at state 0"
        )
    if moment.stored:
        raise InvalidSchedule(
            f"{schedule.name!r} ends with states still stored: {sorted(moment.stored)}; free them"
        )
    return ScheduleSimulation(schedule, tuple(moments))


def _after(before: ScheduleMoment, action: Action, steps: int) -> ScheduleMoment:
    index = action.index
    current, stored, recorded = before.current, before.stored, before.recorded
    gradient, forwards = before.gradient, before.forwards
    match action.do:
        case Do.STORE:
            _require_current(current, index)
            stored |= {index}
        case Do.ADVANCE | Do.RECORD:
            _require_current(current, index)
            if index >= steps:
                raise InvalidSchedule(f"the chain has only {steps} steps")
            if action.do is Do.RECORD:
                recorded |= {index}
            current = index + 1
            forwards += 1
        case Do.RESTORE:
            _require_stored(stored, index)
            current = index
        case Do.FREE:
            _require_stored(stored, index)
            stored -= {index}
        case Do.BACKWARD:
            if index not in recorded:
                raise InvalidSchedule(f"step {index} has not been recorded")
            if gradient is None:  # the loss comes first, and gives the gradient of state n
                _require_current(current, steps)
                gradient = steps
            if gradient != index + 1:
                raise InvalidSchedule(
                    f"it needs the gradient of state {index + 1}; there is that of {gradient}"
                )
            recorded -= {index}
            gradient = index
            current = None
    return ScheduleMoment(action, current, stored, recorded, gradient, forwards)


def _require_current(current: int | None, index: int) -> None:
    if current != index:
        there = "there is no current state" if current is None else f"the current one is {current}"
        raise InvalidSchedule(f"it needs state {index} as the current one; {there}")


def _require_stored(stored: frozenset[int], index: int) -> None:
    if index not in stored:
        raise InvalidSchedule(f"state {index} is not stored; stored are {sorted(stored)}")
