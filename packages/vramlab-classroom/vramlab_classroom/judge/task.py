"""What an exercise is made of: tasks that are judged by measuring.

One file per exercise (`tasks.py` in a lesson's room in `vramlab_course/lessons/`) builds an
`Exercise` from these. A task says how its truth is measured; it never holds an expected number. The
functions given to a task run in a process of the package's own (see `job_pool.py`); everything else
in the file is read without torch, which it therefore takes from `vramlab_classroom.judge.lazy`.

A *config* is a dict of keyword arguments that JSON can carry: one case that an answer is tried on.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from vramlab.errors import VramlabError
from vramlab_classroom.judge.mistakes import Mistake

Config = Mapping[str, Any]


class Attachable(Protocol):
    """A GPU that a task runs on."""

    def attached(self) -> AbstractContextManager[object]:
        """Attach a fresh one, for `with`."""


GPUForCase = Attachable | Callable[..., Attachable] | None
"""The GPU that a task runs on: always the same, or one for each case; None attaches none."""


def attached_for(gpu: GPUForCase, case: Config) -> AbstractContextManager[object]:
    """Attach the GPU on which a case is measured, for `with`."""
    if gpu is None:
        return nullcontext()
    return (gpu(**case) if callable(gpu) else gpu).attached()


@dataclass(frozen=True)
class Observation:
    """What a `Diagnose` task shows, and what really happened there."""

    evidence: Mapping[str, Any]
    """Keyword arguments for the learner's function: snapshots, summaries, numbers. JSON data."""

    answer: int | str
    """The truth, known because the package caused it."""


@dataclass(frozen=True)
class Achieved:
    """What the trial of a `Workshop` says of an answer that has reached its targets."""

    text: str
    """In words, with the targets."""

    size_bytes: int
    """What it takes: the fewer, the better."""

    steps: int
    """What it does: the fewer, the better."""


class NotFixed(VramlabError):
    """Raised by a `Fix` trial: the program is not repaired yet; the message says why.

    Args:
        message: why.
        answered: the answer, if it is one of a few words.
        right: the word that would have been right.
    """

    def __init__(self, message: str, answered: str = "", right: str = "") -> None:
        super().__init__(message)
        self.answered = answered
        self.right = right


@dataclass(frozen=True, kw_only=True)
class Task:
    """What every task has."""

    name: str
    """The name that the learner binds: a function, or a variable. Also the task's identity."""

    points: int
    minutes: int
    """How long a learner is expected to think about it."""

    visible: tuple[Config, ...]
    """Cases that learners may see, tried whenever they check."""

    hidden: Callable[[Random], Iterable[Config]]
    """Draws the cases that decide when the class is graded."""


@dataclass(frozen=True, kw_only=True)
class Predict(Task):
    """The learner writes a function that predicts a number (bytes, most often).

    The function is called with each config and runs on plain Python: it cannot measure.
    """

    measure: Callable[..., int]
    """Measures the truth for a config, on `gpu`."""

    gpu: GPUForCase = None
    """Attached while the truth is measured. None: `measure` attaches its own, or needs none."""

    mistakes: tuple[Mistake, ...] = ()

    rule: Callable[..., Hashable] | None = None
    """Returns the rule that a case is about, or None if it needs several. Without it, cases whose
    names and flags agree are about the same one. Each rule is worth the same share of the points
    (see `partial_credit.py`)."""


@dataclass(frozen=True, kw_only=True)
class Diagnose(Task):
    """The learner says what happened, from evidence that a run left behind.

    With `is_value`, the learner binds a value instead of a function: the answer about the one
    visible case, whose evidence the notebook shows. Such a task has no hidden cases.
    """

    observe: Callable[..., Observation]
    """Makes it happen for a config, on `gpu`."""

    gpu: GPUForCase = None
    """Attached while it happens. None: `observe` attaches its own, or needs none."""

    mistakes: tuple[Mistake, ...] = ()
    """Called with the evidence."""

    rule: Callable[..., Hashable] | None = None
    """As in `Predict`; None: each answer in words is a rule of its own."""

    is_value: bool = False
    hidden: Callable[[Random], Iterable[Config]] = field(default=lambda random: ())


@dataclass(frozen=True, kw_only=True)
class Fix(Task):
    """The learner repairs a program that does not fit, its results unchanged.

    The learner binds a function (or, with `is_value`, a value such as allocator settings).
    """

    trial: Callable[..., str]
    """Called as `trial(answer, **config)`: a `Repair` (see `repair.py`). Returns what was achieved,
    with the bytes; raises `NotFixed` if too little."""

    is_value: bool = False

    by_cases: bool = False
    """Whether cases that are right earn some of the points, though others are wrong."""

    is_plain: bool = False
    """It says how programs of ours run, and runs none itself."""


def runs_in_torch(task: Task) -> bool:
    """Return whether an answer is a PyTorch program, rather than a value or plain Python."""
    return isinstance(task, Fix) and not (task.is_value or task.is_plain)


def runs_in_ranks(task: Task) -> bool:
    """Return whether an answer runs on several ranks, each a process.

    Its trial has `ranks` then, and binds the answer in each of them.
    """
    return isinstance(task, Fix) and getattr(task.trial, "ranks", 0) > 0


@dataclass(frozen=True, kw_only=True)
class Workshop(Fix):
    """The learner builds something, which has to reach targets in bytes and in steps.

    It is tried as a repair is. Beyond full marks it has a score: who takes the fewest bytes, and
    who the fewest steps.
    """

    trial: Callable[..., Achieved]  # type: ignore[assignment]
    """Called as `trial(answer, **config)`; raises `NotFixed` above a target."""

    steps: str
    """What a step is, such as "operators"."""

    without: tuple[str, ...] = ()
    """Modules of torch that an answer cannot import here: they have what is to be built."""


@dataclass(frozen=True)
class Exercise:
    """The graded tasks of one exercise notebook, in the order of its cells."""

    name: str
    """Name of the notebook and of its folder, such as `02_pages_and_blocks`, or, if learners build
    something there, `workshop_f_chunked_cross_entropy`."""

    module: str
    """`__name__` of the module that defines it: how another process finds it."""

    tasks: tuple[Task, ...]

    core: tuple[str, ...] = ()
    """Names of the tasks to solve first, which the notebook, the start page and reports mark."""

    def __post_init__(self) -> None:
        names = [task.name for task in self.tasks]
        if len(set(names)) < len(names):
            raise ValueError(f"two tasks of {self.name} share a name: {', '.join(names)}")
        for name in self.core:
            self.task(name)
        for task in self.tasks:
            if isinstance(task, Diagnose) and task.is_value and len(task.visible) != 1:
                raise ValueError(f"{task.name} asks for one value, so it needs one visible case")

    @property
    def points(self) -> int:
        return sum(task.points for task in self.tasks)

    def task(self, name: str) -> Task:
        """Find a task by name."""
        for task in self.tasks:
            if task.name == name:
                return task
        known = ", ".join(task.name for task in self.tasks)
        raise ValueError(f"{self.name} has no task {name!r}; it has {known}")
