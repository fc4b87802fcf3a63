"""How a repaired program is judged: the trial of every `Fix` task.

    trial=Repair(
        gpu=GPU("T4", values=True),
        build=_model_and_batches,      # what programs are called with, made for each run
        reference=_train,              # the program whose results are right
        limit=room(4 * MIB),           # what the reference has reserved, and so much more
        ran_out=_what_it_holds,        # where the answer ended, and a question
        collect=_weights,              # the results, on the host
        compare=_same_weights,         # raises NotFixed, and says what is different
    )

Every program of a trial runs on a fresh GPU, with the same inputs: first ours, then the answer,
once, within the limit. In that one run memory is limited, values are computed, work is counted
(`work.py`) and results are made; nothing of the answer runs before or after. A task supplies data
and small functions, which see the run that they are about: a `Run`.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar
from weakref import ref

from vramlab.units import format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, NotFixed
from vramlab_classroom.judge.vocabulary import OWN_MODULE
from vramlab_course.tasks.gpus import GPU, leave
from vramlab_course.tasks.limits import Peaks, keeping_peaks, limited
from vramlab_course.tasks.rank_network import Link, Sent
from vramlab_course.tasks.results import as_data, is_plain, parameters_of
from vramlab_course.tasks.run_record import RunRecord
from vramlab_course.tasks.work import LEAST_SHARE, Work, watching

MOST_FLOPS = 1.05
"""Times the reference's, where nothing is to be computed twice."""

ELEMENT_WISE = 0.05
"""Extra element-wise operations that are allowed, as a fraction of the reference's operations:
casts, scales, what is computed again without products."""

MAX_PREPARED = 20
"""So many cases of a task are prepared at a time, of which a class has some each."""

Loaded = TypeVar("Loaded")

Outline = tuple["torch.dtype", "torch.Size", int]
"""Dtype, shape, and the bytes of the storage of a tensor."""

Program = Any
"""What `Repair.call` can run: a function, most often."""


@dataclass
class Run:
    """One run of a program, as far as it has come."""

    case: Config
    program: Program

    limits_bytes: Sequence[int] = ()
    """What it may reserve of each GPU; nothing, if memory is not limited."""

    most_allocated_bytes: int = 0
    """What it may allocate of one GPU; 0 if only the limit counts."""

    our_peak_bytes: int = 0
    """The peak of our own program that fits; 0 if there is none."""

    best_peak_bytes: int = 0
    """The lowest peak that is known, if it is another program's; otherwise 0."""

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

    work: Work = field(default_factory=Work)
    """What it has computed, and where."""

    expected_work: Work = field(default_factory=Work)
    """What the reference has."""

    record: RunRecord = field(default_factory=RunRecord)
    """In a workshop, all that it has done: see `building.py`."""

    link: Link | None = None
    """In a rank's process, its connection to the other ranks: see `ranks.py`."""

    sent: Sent = field(default_factory=list)
    """What each rank has sent."""

    _given: list[tuple[ref[torch.Tensor], Outline]] = field(default_factory=list)

    def ours(self, function: Callable[..., Loaded]) -> Callable[..., Loaded]:
        """Give a function of the task's to the program: what it computes is not the program's."""

        @wraps(function)
        def call_uncounted(*args: Any, **kwargs: Any) -> Loaded:
            for each in (*args, *kwargs.values()):
                _require_plain(each)
            with self.work.pausing():
                self.require_intact()
                given = function(*args, **kwargs)
                self.note_given(given if isinstance(given, tuple | list) else [given])
                return given

        return call_uncounted

    def noting(self, load: Callable[[int], Loaded]) -> Callable[[int], Loaded]:
        """Load batches as `load` does, and note the index of each before it comes."""

        def load_and_note(index: int) -> Loaded:
            self.noted.append(index)
            return load(index)

        return self.ours(load_and_note)

    def note_given(self, given: Sequence[Any]) -> None:
        """Note tensors, and parameters of modules, that the program is given and does not own."""
        tensors = list(_tensors(given))
        self._given += zip(map(ref, tensors), _outlines(tensors), strict=True)

    def require_intact(self) -> None:
        """Require that tensors that were given to the program, and are there, are what they were.

        Their numbers may have changed, and modules may have been moved.

        Raises:
            NotFixed: one has another shape or dtype, or less memory.
        """
        found = [(tensor, given) for given in self._given if (tensor := given[0]()) is not None]
        self._given = [given for _, given in found]
        outlines = _outlines([tensor for tensor, _ in found])
        for (_, before), now in zip(self._given, outlines, strict=True):
            if now != before:
                raise NotFixed(
                    f"It changed a tensor that it was given: {_in_words(before)} has become "
                    f"{_in_words(now)}. Do not free its memory directly: delete the variables "
                    "that reference it."
                )

    @property
    def times_the_flops(self) -> float:
        """How much it computes, as a multiple of the reference.

        Either its FLOPs or all of its operations, less the `ELEMENT_WISE` ones that are allowed,
        whichever is more: a product counts as one however it is written.
        """
        own = self.expected_work
        return max(
            self.work.flops / max(own.flops, 1),
            self.work.operations / max(own.operations, 1) - ELEMENT_WISE,
        )

    def require_no_more_flops(self, why: str, most: float = MOST_FLOPS) -> None:
        """Require that hardly a product is computed that the reference does without.

        One layer in twenty may be: who writes a layer's backward pass also makes the gradient of
        the first input, for which autograd would not have asked.

        Args:
            why: says what was computed again, and what should have been done.
            most: the largest multiple that is allowed.

        Raises:
            NotFixed: there are more FLOPs.
        """
        if self.times_the_flops > most:
            raise NotFixed(f"It fits, but takes {self.times_the_flops:.2f} times the FLOPs: {why}")

    def require_stayed(self, most_bytes: int, why: str) -> None:
        """Require that hardly anything was copied to the host.

        Args:
            most_bytes: may go there, to be looked at.
            why: says what should have been done.

        Raises:
            NotFixed: more went there.
        """
        if self.work.to_host_bytes > most_bytes:
            raise NotFixed(
                f"It fits, but copies {format_bytes(self.work.to_host_bytes)} to the host. {why}"
            )

    def require_allocated(self) -> None:
        """Require that hardly more was allocated at any moment than by the program that fits.

        Raises:
            NotFixed: more was.
        """
        if self.peak_bytes > self.most_allocated_bytes > 0:
            peak, most, ours = map(
                format_bytes, (self.peak_bytes, self.most_allocated_bytes, self.our_peak_bytes)
            )
            raise NotFixed(
                f"It runs to the end, but its peak is {peak}; the limit is {most}, and our "
                f"program needs {ours}. Which tensors live longer than they are needed?"
            )

    def read_peaks(self, peaks: Sequence[Peaks]) -> None:
        """Note the peaks of the attached GPUs."""
        self.peaks_bytes = [peak.allocated_bytes for peak in peaks]
        self.reserved_bytes = [peak.reserved_bytes for peak in peaks]

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
        within = f"With a limit of {format_bytes(self.limit_bytes)}"
        # Segments count: less may be allocated where the next one finds no room.
        reserved_bytes = max(self.reserved_bytes, default=0)
        if 0 < reserved_bytes < self.limit_bytes:
            within += f", of which {format_bytes(reserved_bytes)} are reserved"
        return f"{within}, it runs out of memory"

    @property
    def peak_report(self) -> str:
        """The verdict's remark on a program that fits: its peak, the limit, and our program's."""
        if not self.limits_bytes:
            return ""
        most_bytes = min(self.limit_bytes, self.most_allocated_bytes or self.limit_bytes)
        peak, limit, ours, best = map(
            format_bytes,
            (self.peak_bytes, most_bytes, self.our_peak_bytes, self.best_peak_bytes),
        )
        if not self.our_peak_bytes:
            return f"peak {peak}, limit {limit}"
        if not self.best_peak_bytes:
            return f"peak {peak}, limit {limit}, ours {ours}"
        return f"peak {peak}, limit {limit}, ours {ours}, best known {best}"


def room(room_bytes: int) -> Callable[[Run], Sequence[int]]:
    """Limit memory to what our own run has reserved on each GPU, and so much more."""
    return lambda own: [reserved_bytes + room_bytes for reserved_bytes in own.reserved_bytes]


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
    """`collect(run, returned)` takes results to the host, from inputs and from what `call` gave, as
    data; raises `NotFixed`, if they are not what they should be. The GPU is still attached."""

    reference: Program | None = None
    """The program whose results are right."""

    fits: Program | None = None
    """The program that decides the limit; by default the reference."""

    limit: Callable[[Run], int | Sequence[int]] | None = None
    """Gives the most that the answer may reserve, for one GPU or for each, from the run of the
    program that fits (if there is none, from a run that knows the case alone): see `room`."""

    allocated_room_bytes: int | None = None
    """What the answer may allocate beyond the peak of the program that fits. The limit alone is
    coarse: it counts segments, which have 20 MiB."""

    by_others: bool = False
    """The limit is what others leave of the GPU once the inputs are built: a program can read it
    off the driver. Otherwise PyTorch's allocator keeps to it."""

    peak: Callable[[Run], int] | None = None
    """What of the results is the peak, for programs that measure it: the limit is compared with it
    afterwards, and does not stop the program."""

    ran_out: Callable[[Run], str] = lambda run: f"{run.ran_out}."
    """Says where a program has ended that needs more than the limit, and asks what may help. It is
    called while the tensors of the program are still there."""

    compare: Callable[[Run, Any], None] = lambda run, expected: None
    """`compare(run, expected)` holds the results of the answer's run against the reference's;
    raises `NotFixed`, if they are others."""

    report: Callable[[Run], str] = lambda run: run.peak_report
    """Says what was achieved."""

    least_share: float = LEAST_SHARE
    """The answer has to compute this share of what the reference does, at least, and on the GPU;
    less where an answer can do with less (`work.py`)."""

    any_precision: bool = False
    """Whether products may have numbers of fewer bytes than the reference's."""

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
        return self.report(self._tried(answer, case))

    def _tried(self, answer: Any, case: Config) -> Run:
        """Try an answer on a case; raises `NotFixed` as a call does."""
        own, right = self.our_runs(case)
        limit = self.limit(own) if self.limit else ()
        try:
            run = Run(
                case, self.program_of(answer, case), [limit] if isinstance(limit, int) else limit
            )
            run.expected, run.expected_work = right.results, right.work
            run.our_peak_bytes = self.peak_of(own)
            run.best_peak_bytes = self.best_known_bytes(case)
            if self.allocated_room_bytes is not None:
                run.most_allocated_bytes = run.our_peak_bytes + self.allocated_room_bytes
            self._run(run)
            self._require(run)
        except NotFixed:
            raise
        except Exception as error:
            if _is_from_answer(error):
                raise
            # Our own programs have run under the very same calls: it is the answer's doing.
            raise NotFixed(
                "The check cannot use what your program returns or leaves behind: "
                f"{type(error).__name__}: {error}"
            ) from error
        return run

    def peak_of(self, own: Run) -> int:
        """Return the peak of our own run, in bytes; 0 if there was none."""
        if not own.peaks_bytes:
            return 0
        return self.peak(own) if self.peak else own.peak_bytes

    @property
    def name(self) -> str:
        """The name of our own program that fits, which no other repair has."""
        program = self.fits or self.reference
        return f"{getattr(program, '__module__', '')}.{getattr(program, '__qualname__', '')}"

    def best_known_bytes(self, case: Config) -> int:
        """Return the lowest peak that is known for a case; 0 if none was measured.

        Source: `best_known.json`, the peaks of right answers in `tests/course/*/honest_repairs`;
        `tests/course/tasks/test_honest_repairs.py` measures them again.
        """
        return int(_best_known().get(self.name, {}).get("peaks_bytes", {}).get(_key(case), 0))

    def _require(self, run: Run) -> None:
        """Check a finished run against the reference."""
        if self.reference is not None:
            run.work.require_like(run.expected_work, self.least_share, self.any_precision)
        self.compare(run, run.expected)

    def program_of(self, answer: Any, case: Config) -> Program:
        """Return the program that an answer is, or makes for a case."""
        return self.accept(as_data(answer), **case) if self.accept else answer

    def prepare(self, **case: Any) -> None:
        """Run our own programs on a case, so that no answer's trial has to."""
        if _key(case) not in self._prepared:
            while len(self._prepared) >= MAX_PREPARED:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[_key(case)] = self.our_runs(case)

    def our_runs(self, case: Config) -> tuple[Run, Run]:
        """Run the program that fits, and the one whose results are right, if they have not been."""
        if prepared := self._prepared.get(_key(case)):
            return prepared
        own = right = Run(case, None)
        if self.reference is not None:
            own = right = self._run(Run(case, self.reference))
        if self.fits is not None:
            own = self._run(Run(case, self.fits))
        return own, right

    def _run(self, run: Run) -> Run:
        gpu = self.gpu if isinstance(self.gpu, GPU) else self.gpu(run.program)
        with gpu.attached() as attached, keeping_peaks(attached) as peaks:
            run.inputs = self.build(run, **run.case)
            run.note_given(run.inputs)
            held_bytes = [torch.cuda.memory_reserved(index) for index in range(gpu.count)]
            with watching(attached, run.work):
                try:
                    with self._limited(run.limits_bytes), run.work.counting():
                        returned = self._called(run)
                        gc.collect()  # so that finalizers of the answer's objects count, too
                except torch.cuda.OutOfMemoryError as error:
                    if not run.limits_bytes:
                        raise
                    run.said = str(error)
                    run.read_peaks(peaks)
                    raise NotFixed(self.ran_out(run)) from error
                run.read_peaks(peaks)
                if not self.peak:
                    self._require_limit(run, held_bytes)
                    run.require_allocated()
                run.require_intact()
                run.results = self.collect(run, as_data(returned))
            run.inputs = ()
            if self.peak and run.limits_bytes:
                run.peaks_bytes = [self.peak(run)]
                if run.peak_bytes > run.limit_bytes:
                    raise NotFixed(self.ran_out(run))
        return run

    def _called(self, run: Run) -> Any:
        return self.call(run)

    def _require_limit(self, run: Run, held_bytes: Sequence[int]) -> None:
        """Require that the limit was kept to; it can be changed, by who can reach it."""
        for gpu, limit_bytes in enumerate(run.limits_bytes):
            most_bytes = limit_bytes + (held_bytes[gpu] if self.by_others else 0)
            if run.reserved_bytes[gpu] > most_bytes:
                raise NotFixed(
                    f"It reserved {format_bytes(run.reserved_bytes[gpu])} on GPU {gpu}; the limit "
                    f"is {format_bytes(most_bytes)}. Do not change the limit."
                )

    def _limited(self, limits_bytes: Sequence[int]) -> AbstractContextManager[None]:
        if self.peak:
            return nullcontext()
        if not self.by_others:
            return limited(limits_bytes)
        for gpu, limit_bytes in enumerate(limits_bytes):
            leave(limit_bytes, gpu)
        return nullcontext()


@cache
def _best_known() -> Mapping[str, Mapping[str, Any]]:
    text = Path(__file__).with_name("best_known.json").read_text(encoding="utf-8")
    known: Mapping[str, Mapping[str, Any]] = json.loads(text)
    return known


def _key(case: Config) -> str:
    return json.dumps(case, sort_keys=True, default=str)


def _is_from_answer(error: BaseException) -> bool:
    """Return whether a line of the answer is in an error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return any(frame.filename == OWN_MODULE for frame in frames)


def _require_plain(argument: object) -> None:
    """Refuse objects of the answer's own classes, whose methods would run while nothing counts."""
    kind = type(argument)
    own_tensor = isinstance(argument, torch.Tensor) and not is_plain(argument)
    if kind.__module__ == OWN_MODULE or own_tensor:
        raise NotFixed(
            f"It calls a given function with a {kind.__name__}. Pass plain numbers and tensors."
        )


def _tensors(inputs: Sequence[Any]) -> Iterator[torch.Tensor]:
    """Yield the tensors among a program's inputs, and the parameters of modules."""
    for each in inputs:
        if isinstance(each, torch.Tensor):
            yield each
        elif isinstance(each, torch.nn.Module):
            yield from parameters_of(each)


def _outlines(tensors: Sequence[torch.Tensor]) -> list[Outline]:
    """Return what a program has to leave as it is of tensors that it was given.

    They are asked past all torch functions, those of their classes too: there are many, and often.
    """
    from vramlab.gpu.torch_internals import DisableTorchFunction

    with DisableTorchFunction():
        return [(each.dtype, each.shape, each.untyped_storage().nbytes()) for each in tensors]


def _in_words(outline: Outline) -> str:
    dtype, shape, size_bytes = outline
    return f"{dtype} of shape {tuple(shape)} with {format_bytes(size_bytes)}"
