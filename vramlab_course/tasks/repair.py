"""How a repaired program is judged: the trial of every `Fix` task.

    trial=Repair(
        gpu=GPU("T4", values=True),
        build=_model_and_batches,      # what programs are called with, made anew for each run
        reference=_train,              # the program whose results are right
        limit=room(4 * MIB),           # what the reference has reserved, and so much more
        ran_out=_what_it_holds,        # where the answer ended, and a question
        collect=_weights,              # the results, on the host
        compare=_same_weights,         # raises NotFixed, and says what is different
    )

Every program of a trial runs on a fresh GPU, with the same inputs: first ours, then the answer,
within the limit. What is compared comes from the run in which memory was limited. A task supplies
data and small functions, which see the run that they are about: a `Run`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from vramlab.units import format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, NotFixed
from vramlab_course.tasks.batches import noting
from vramlab_course.tasks.gpus import GPU, leave
from vramlab_course.tasks.limits import limited

MAX_PREPARED = 20
"""So many cases of a task are prepared at a time, of which a class has some each."""

Program = Any
"""What `Repair.call` can run: a function, most often."""


@dataclass
class Run:
    """One run of a program, as far as it has come."""

    case: Config
    program: Program

    limits_bytes: Sequence[int] = ()
    """What it may reserve of each GPU; nothing, if memory is not limited."""

    inputs: Sequence[Any] = ()
    """What it is called with, until its results are collected."""

    noted: list[Any] = field(default_factory=list)
    """What its inputs have noted meanwhile: the batches that it has loaded, for example."""

    peaks_bytes: Sequence[int] = ()
    """The most that was allocated on each GPU, until the program ended, or ran out of memory."""

    reserved_bytes: Sequence[int] = ()
    """The most that was reserved on each GPU."""

    said: str = ""
    """What PyTorch said when it ran out of memory."""

    results: Any = None
    """What `Repair.collect` gave."""

    expected: Any = None
    """What it gave for the reference."""

    def noting(self, load: Callable[[int], Any]) -> Callable[[int], Any]:
        """Load batches as `load` does, and note the index of each before it comes."""
        return noting(load, self.noted)

    def read_peaks(self, gpus: int) -> None:
        """Note the peaks of the attached GPUs, of which there are so many."""
        self.peaks_bytes = [torch.cuda.max_memory_allocated(gpu) for gpu in range(gpus)]
        self.reserved_bytes = [torch.cuda.max_memory_reserved(gpu) for gpu in range(gpus)]

    @property
    def peak_bytes(self) -> int:
        """The most that was allocated on one GPU."""
        return max(self.peaks_bytes)

    @property
    def limit_bytes(self) -> int:
        """The most that may be reserved on one GPU."""
        return max(self.limits_bytes)

    @property
    def ran_out(self) -> str:
        """Begin a sentence on a program that needs more."""
        return f"With {format_bytes(self.limit_bytes)} to use, it runs out of memory"

    @property
    def peak_report(self) -> str:
        """The verdict's remark on a program that fits: its peak, and the limit if there is one."""
        if not self.limits_bytes:
            return ""
        return f"peak {format_bytes(self.peak_bytes)} of {format_bytes(self.limit_bytes)}"


def room(room_bytes: int) -> Callable[[Run], Sequence[int]]:
    """Limit memory to what our own run has reserved on each GPU, and so much more."""
    return lambda own: [reserved_bytes + room_bytes for reserved_bytes in own.reserved_bytes]


def on_host(value: object, or_else: str) -> torch.Tensor:
    """Take a result that has to be a tensor on the GPU to the host.

    Raises:
        NotFixed: it is none; says `or_else`.
    """
    if not isinstance(value, torch.Tensor) or not value.is_cuda:
        raise NotFixed(or_else)
    return value.detach().cpu()


def require_close(
    found: torch.Tensor,
    expected: torch.Tensor,
    or_else: str,
    *,
    rtol: float = 1e-5,
    atol: float = 1e-8,
) -> None:
    """Require the numbers of a tensor, both on the host, up to a tolerance: as `torch.allclose`.

    Args:
        found: what the answer's run has given.
        expected: what the reference's has.
        or_else: what to say where a number, or the shape, is another.
        rtol: how far each number may be off, relative to it.
        atol: how far it may be off besides.

    Raises:
        NotFixed: they are others.
    """
    if found.shape != expected.shape or not torch.allclose(
        found.to(expected.dtype), expected, rtol=rtol, atol=atol
    ):
        raise NotFixed(or_else)


@dataclass(frozen=True, kw_only=True)
class Repair:
    """A program to be repaired, and what a repaired one has to do: called with answer and case."""

    gpu: GPU | Callable[[Program], GPU]
    """Where programs run, or tells by the program. It computes values if they are compared."""

    build: Callable[..., Sequence[Any]] = lambda run, **case: ()
    """`build(run, **case)` makes what programs are called with, on the attached GPU, and lets it
    note in `run.noted` what programs do with it. What it takes counts as the program's memory."""

    accept: Callable[..., Program] | None = None
    """`accept(answer, **case)` makes a program of an answer that is none; raises `NotFixed`, if the
    answer is nothing that was asked for."""

    call: Callable[[Run], Any] = lambda run: run.program(*run.inputs)
    """Runs the program, within the limit."""

    collect: Callable[[Run, Any], Any] = lambda run, returned: returned
    """`collect(run, returned)` takes results to the host, from inputs and from what `call` gave;
    raises `NotFixed`, if they are not what they should be. The GPU is still attached."""

    reference: Program | None = None
    """The program whose results are right."""

    fits: Program | None = None
    """The program that decides the limit; by default the reference."""

    limit: Callable[[Run], int | Sequence[int]] | None = None
    """Gives the most that the answer may reserve, for one GPU or for each, from the run of the
    program that fits (if there is none, from a run that knows the case alone): see `room`."""

    by_others: bool = False
    """The limit is what others leave of the GPU once the inputs are built: a program can read it
    off the driver. Otherwise PyTorch's allocator keeps to it."""

    peak: Callable[[Run], int] | None = None
    """What of the results is the peak, for programs that measure it: the limit is held against it
    afterwards, and nobody keeps to it meanwhile."""

    ran_out: Callable[[Run], str] = lambda run: f"{run.ran_out}."
    """Says where a program has ended that needs more than the limit, and asks what may help. It is
    called while the tensors of the program are still there."""

    compare: Callable[[Run, Any], None] = lambda run, expected: None
    """`compare(run, expected)` holds the results of the answer's run against the reference's;
    raises `NotFixed`, if they are others."""

    report: Callable[[Run], str] = lambda run: run.peak_report
    """Says what was achieved."""

    _prepared: dict[str, tuple[Run, Run]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """Our runs on some cases."""

    def __call__(self, answer: Any, **case: Any) -> str:
        """Try an answer on a case.

        Returns:
            What was achieved.

        Raises:
            NotFixed: the answer takes too much, or does something else; the message says what.
        """
        program = self.accept(answer, **case) if self.accept else answer
        own, right = self._prepared.get(_key(case)) or self._our_runs(case)
        limit = self.limit(own) if self.limit else ()
        run = self._run(program, case, [limit] if isinstance(limit, int) else limit)
        run.expected = right.results
        self.compare(run, run.expected)
        return self.report(run)

    def prepare(self, **case: Any) -> None:
        """Run our own programs on a case, so that no answer's trial has to."""
        if _key(case) not in self._prepared:
            while len(self._prepared) >= MAX_PREPARED:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[_key(case)] = self._our_runs(case)

    def _our_runs(self, case: Config) -> tuple[Run, Run]:
        """Run the program that fits, and the one whose results are right."""
        own = right = Run(case, None)
        if self.reference is not None:
            own = right = self._run(self.reference, case)
        if self.fits is not None:
            own = self._run(self.fits, case)
        return own, right

    def _run(self, program: Program, case: Config, limits_bytes: Sequence[int] = ()) -> Run:
        run = Run(case, program, limits_bytes)
        gpu = self.gpu if isinstance(self.gpu, GPU) else self.gpu(program)
        with gpu.attached():
            run.inputs = self.build(run, **case)
            try:
                with self._limited(limits_bytes):
                    returned = self.call(run)
            except torch.cuda.OutOfMemoryError as error:
                if not limits_bytes:
                    raise
                run.said = str(error)
                run.read_peaks(gpu.count)
                raise NotFixed(self.ran_out(run)) from error
            run.read_peaks(gpu.count)
            run.results = self.collect(run, returned)
            run.inputs = ()
            if self.peak and limits_bytes:
                run.peaks_bytes = [self.peak(run)]
                if run.peak_bytes > run.limit_bytes:
                    raise NotFixed(self.ran_out(run))
        return run

    def _limited(self, limits_bytes: Sequence[int]) -> AbstractContextManager[None]:
        if self.peak:
            return nullcontext()
        if not self.by_others:
            return limited(limits_bytes)
        for gpu, limit_bytes in enumerate(limits_bytes):
            leave(limit_bytes, gpu)
        return nullcontext()


def _key(case: Config) -> str:
    return json.dumps(case, sort_keys=True, default=str)


class InTurn:
    """Repairs that an answer is tried on one after the other.

    For programs whose values cannot be computed where their memory is measured.
    """

    def __init__(self, *repairs: Repair) -> None:
        self.repairs = repairs

    def __call__(self, answer: Any, **case: Any) -> str:
        """Try an answer on a case: see `Repair`."""
        return ", ".join(filter(None, [repair(answer, **case) for repair in self.repairs]))

    def prepare(self, **case: Any) -> None:
        """See `Repair`."""
        for repair in self.repairs:
            repair.prepare(**case)
