"""Runs a schedule over a chain of modules: what it says to compute again is computed again.

Gradients come out as without checkpointing, also with dropout: the first time that a step runs, the
state of the random number generators is kept, and it is put back whenever the step runs again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from vramlab_course.lessons.l14_gradient_checkpointing.checkpointing.schedule import (
    Action,
    Do,
    Schedule,
    simulate,
)

Step = Callable[[Tensor], Tensor]
"""One step of a chain, most often a module: a state in, the next state out."""

Loss = Callable[[Tensor], Tensor]
"""From the last state to a scalar."""


@dataclass(frozen=True)
class ActionReading:
    """What torch.cuda said about one action."""

    action: Action
    allocated_bytes: int
    """After it (torch.cuda.memory_allocated)."""
    peak_bytes: int
    """While it ran (torch.cuda.max_memory_allocated)."""


@dataclass(frozen=True)
class Execution:
    """What came of running a schedule."""

    loss: Tensor
    forwards: int
    """How often a step was called."""
    readings: tuple[ActionReading, ...]
    """One per action, if they were asked for."""


def execute(
    schedule: Schedule,
    steps: Sequence[Step] | nn.Sequential,
    x: Tensor,
    loss: Loss,
    *,
    readings: bool = False,
) -> Execution:
    """Run one training step: gradients are added to the parameters' `grad`, and to that of `x`.

    Args:
        schedule: for a chain of as many steps.
        steps: the chain.
        x: state 0, on a GPU. It gets a gradient if it requires one.
        loss: applied to the last state.
        readings: read the memory of each action; torch's peak counter is reset at each.

    Raises:
        InvalidSchedule: the schedule does not hold together.
        ValueError: it is for a chain of another length.
    """
    simulate(schedule)
    if len(steps) != schedule.steps:
        raise ValueError(
            f"{schedule.name!r} is a schedule for {schedule.steps} steps; the chain has "
            f"{len(steps)}"
        )
    run = _Run(list(steps), x, loss)
    read = []
    for action in schedule.actions:
        if readings:
            torch.cuda.reset_peak_memory_stats(x.device)
        run.act(action)
        if readings:
            allocated_bytes = torch.cuda.memory_allocated(x.device)
            read.append(
                ActionReading(action, allocated_bytes, torch.cuda.max_memory_allocated(x.device))
            )
    assert run.value is not None  # a valid schedule goes back, and so through the loss
    return Execution(run.value, run.forwards, tuple(read))


@dataclass
class _Recording:
    """What a step that ran with autograd leaves for going back."""

    state: Tensor
    """Its input, as a leaf."""
    end: GradientEdge | None
    """Where its graph ends. The output itself is not held: the next recording does, if any. None
    where nothing needs a gradient: a first step without parameters, on an input without one."""


@dataclass
class _Run:
    """A schedule in progress."""

    steps: Sequence[Step]
    x: Tensor
    loss: Loss
    forwards: int = 0
    value: Tensor | None = None
    """The loss, once it has been computed."""
    current: Tensor | None = field(init=False)
    gradient: Tensor | None = None
    stored: dict[int, Tensor] = field(default_factory=dict)
    recorded: dict[int, _Recording] = field(default_factory=dict)
    dice: dict[int, _Dice] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.current = self.x.detach()

    def act(self, action: Action) -> None:
        """Do what a valid schedule says next."""
        index = action.index
        match action.do:
            case Do.STORE:
                self.stored[index] = self._current()
            case Do.RESTORE:
                self.current = self.stored[index]
            case Do.FREE:
                del self.stored[index]
            case Do.ADVANCE:
                with torch.no_grad():
                    self.current = self._forward(index, self._current())
            case Do.RECORD:
                self._record(index)
            case Do.BACKWARD:
                self._backward(index)

    def _current(self) -> Tensor:
        assert self.current is not None  # the simulator has seen to it
        return self.current

    def _forward(self, index: int, state: Tensor) -> Tensor:
        self.forwards += 1
        if index in self.dice:
            with self.dice[index].again():
                return self.steps[index](state)
        self.dice[index] = _Dice(state.device)
        return self.steps[index](state)

    def _record(self, index: int) -> None:
        wanted = index > 0 or self.x.requires_grad
        state = self._current().detach().requires_grad_(wanted)
        with torch.enable_grad():
            output = self._forward(index, state)
        end = get_gradient_edge(output) if output.requires_grad else None
        self.recorded[index] = _Recording(state, end)
        self.current = output.detach()

    def _backward(self, index: int) -> None:
        if self.gradient is None:
            self._apply_loss()
        self.current = None
        recording = self.recorded.pop(index)
        if recording.end is not None:
            torch.autograd.backward((recording.end,), (self.gradient,))
        self.gradient = recording.state.grad
        if index == 0 and self.gradient is not None:
            self.x.grad = self.gradient if self.x.grad is None else self.x.grad + self.gradient

    def _apply_loss(self) -> None:
        last = self._current().detach().requires_grad_()
        with torch.enable_grad():
            value = self.loss(last)
        value.backward()
        self.value, self.gradient = value.detach(), last.grad


class _Dice:
    """The random numbers that a step draws, so that it can draw them again."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.states = self._read()

    @contextmanager
    def again(self) -> Iterator[None]:
        """Draw in the body of the with statement what was drawn before; then go on as if not."""
        now = self._read()
        self._write(self.states)
        try:
            yield
        finally:
            self._write(now)

    def _read(self) -> tuple[Tensor, Tensor | None]:
        on_gpu = torch.cuda.get_rng_state(self.device) if self.device.type == "cuda" else None
        return torch.get_rng_state(), on_gpu

    def _write(self, states: tuple[Tensor, Tensor | None]) -> None:
        on_host, on_gpu = states
        torch.set_rng_state(on_host)
        if on_gpu is not None:
            torch.cuda.set_rng_state(on_gpu, self.device)
