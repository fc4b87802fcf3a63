"""How what learners build is judged: the trial of every `Workshop`.

A `Repair` whose limit is a target: the program is not stopped there, so the run goes to its end and
can be drawn, and what is above the target is named. Besides, there is a target in steps.

    trial=Building(
        gpu=BARE_T4,
        build=_batch,
        reference=_plain,              # the program whose results are right
        fits=_in_pieces,               # a program that reaches the targets
        limit=lambda own: ...,         # the target in bytes
        most_steps=lambda run: ...,    # the target in steps
        compare=_same_loss,
    )

Every run is recorded (`run_record.py`): what is judged is what is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vramlab.units import KIB, format_bytes
from vramlab_classroom.judge.task import Achieved, Config, NotFixed
from vramlab_course.tasks.gpus import GPU, NO_RESTS
from vramlab_course.tasks.repair import Program, Repair, Run
from vramlab_course.tasks.run_record import recording

if TYPE_CHECKING:
    from vramlab_course.plots.lanes import Lanes, Span

Curves = Mapping[str, "Sequence[tuple[float, int]]"]
"""By name, moments and what is held from each on, in bytes."""

BARE_T4 = GPU("T4", values=True, torch_version="1.13", alloc_conf=NO_RESTS)
"""Computes values, and holds what programs make and nothing besides: no block keeps a rest, and by
the rules of that PyTorch cuBLAS takes no workspaces of the allocator."""

MOST_TO_HOST_BYTES = 64 * KIB
"""May be copied to the host: numbers to be looked at, but nothing that is to come back."""

PRODUCTS = frozenset({"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot"})
"""Operators whose work is in FLOPs."""


def above_target(run: Run) -> str:
    """Describe how far a run is above its target in bytes, and by what."""
    return (
        f"It allocates {format_bytes(run.peak_bytes)} at its peak; the target is "
        f"{format_bytes(run.limit_bytes)}. The largest blocks then are {described(run)}."
    )


def described(run: Run) -> str:
    """Describe what is there at a run's peak."""
    return run.record.largest_at_peak()


def operators(run: Run, gpu: int | None = None) -> list[Span]:
    """Return operators in two rows, and above them what the workshop's own functions have done.

    Args:
        run: of which.
        gpu: only what is done on this one.
    """
    from vramlab_course.plots.lanes import Span

    marks, steps = (
        [each for each in some if gpu is None or each.gpu == gpu]
        for some in (run.record.marks, run.record.steps)
    )
    bars = []
    for each in steps:
        kind = "products" if each.name in PRODUCTS else "other operators"
        bars.append(Span(kind, kind, "", each.start, each.end))
    return [
        *(Span(each.name, each.name, "", each.start, each.end) for each in marks),
        *sorted(bars, key=lambda bar: bar.kind != "products"),
    ]


def allocated(run: Run) -> Curves:
    """Return what is allocated on each GPU, tick by tick."""
    return {f"GPU {gpu}": list(enumerate(held)) for gpu, held in run.record.held_bytes.items()}


@dataclass(frozen=True, kw_only=True)
class Building(Repair):
    """Something to be built, and the targets that it has to reach."""

    peak: Callable[[Run], int] | None = lambda run: run.peak_bytes
    """What is compared with the target in bytes; by default the peak of allocated memory."""

    ran_out: Callable[[Run], str] = above_target

    steps: Callable[[Run], int] = lambda run: len(run.record.steps)
    """Counts the steps of a run; by default operators."""

    steps_name: str = "operators"
    question: str = "Which of them could be combined?"
    """Asked who takes more steps."""

    most_steps: Callable[[Run], int]
    """The target in steps, from the run of the program that fits: see `limit`."""

    time: str = "one step to the right: a block is allocated or freed, or an operator has run"
    """What time is, in pictures."""

    time_is_steps: bool = False
    """Whether pictures count time in steps: then they draw the target in steps, too."""

    held: str = "allocated"
    """What is compared with the target in bytes."""

    bars: Callable[[Run], Sequence[Span]] = operators
    """What was done, for pictures."""

    curves: Callable[[Run], Curves] = allocated
    """What was held meanwhile."""

    largest: Callable[[Run], str] = described
    """Says what is there at the peak of a run."""

    own_name: str = "ours"
    """What our own program is called in scores."""

    pytorch: Program | None = None
    """What PyTorch itself does, for scores, if our own program is another."""

    best: Program | None = None
    """The program with the fewest bytes or steps that is known, if it is not our own."""

    step_ends: Callable[[Run], Sequence[int]] = lambda run: [each.end for each in run.record.steps]
    """When steps end, for pictures."""

    _others: dict[str, Mapping[str, tuple[int, int]]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """By case and name, the bytes and steps of other programs than our own."""

    ranks: int = 0
    """The most ranks that an answer runs on, each a process; 0 without ranks. See `ranks.py`."""

    def __call__(self, answer: Any, **case: Any) -> Achieved:  # type: ignore[override]
        """Try an answer on a case.

        Raises:
            NotFixed: it is above a target, or does something else; the message says what.
        """
        self.prepare(**case)
        run = self._tried(answer, case)
        run.require_stayed(MOST_TO_HOST_BYTES, "Do not use host memory in this workshop.")
        steps, most = self.steps(run), self.target_steps(run)
        if steps > most:
            raise NotFixed(
                f"{self.score(run)}. That is too many {self.steps_name}. {self.question}"
            )
        return Achieved(self.score(run), run.peak_bytes, steps)

    def prepare(self, **case: Any) -> None:
        """Run our own programs on a case, and others for its score."""
        super().prepare(**case)
        key = str(case)
        if key not in self._others:
            programs = {"PyTorch": self.pytorch, "best known": self.best}
            runs = {
                name: self._run(Run(case, program))
                for name, program in programs.items()
                if program is not None
            }
            self._others[key] = {
                name: (self.peak_of(each), self.steps(each)) for name, each in runs.items()
            }

    def score(self, run: Run) -> str:
        """Give what a run takes, bytes first, beside the targets and what other programs take."""
        own, _ = self.our_runs(run.case)
        own_bytes, own_steps = self.peak_of(own), self.steps(own)
        known = {self.own_name: (own_bytes, own_steps), **self._others[str(run.case)]}
        if best := known.get("best known"):
            known["best known"] = min(best[0], own_bytes), min(best[1], own_steps)
        sizes = "".join(f", {name} {format_bytes(each)}" for name, (each, _) in known.items())
        steps = "".join(f", {name} {each:,}" for name, (_, each) in known.items())
        return (
            f"peak {format_bytes(run.peak_bytes)}, target {format_bytes(run.limit_bytes)}{sizes}; "
            f"{self.steps(run):,} {self.steps_name}, target {self.most_steps(own):,}{steps}"
        )

    def target_steps(self, run: Run) -> int:
        """Return the target in steps for the case of a run."""
        own, _ = self.our_runs(run.case)
        return self.most_steps(own)

    def watch(self, answer: Any, case: Config) -> Run:
        """Run an answer, to be drawn: nothing is required of it.

        Raises:
            NotFixed: it is nothing that could be run.
            Exception: whatever the answer raises.
        """
        self.prepare(**case)
        own, right = self.our_runs(case)
        program = self.program_of(answer, case)
        run = self._run(Run(dict(case), program, expected=right.results))
        limit = self.limit(own) if self.limit else ()
        run.limits_bytes = [limit] if isinstance(limit, int) else limit
        if self.peak:
            run.peaks_bytes = [self.peak(run)]
        return run

    def _called(self, run: Run) -> Any:
        from vramlab.gpu import attached

        gpu = attached()
        assert gpu is not None
        with recording(gpu, run.work, run.record):
            return self.call(run)

    def _target_end(self, run: Run) -> int | None:
        """Return when a run has taken all steps that it may, if it takes more."""
        most = self.target_steps(run)
        if self.time_is_steps:
            return most
        ends = self.step_ends(run)
        return ends[most - 1] if len(ends) > most > 0 else None

    def picture(self, name: str, run: Run) -> Lanes:
        """Return what there is to be drawn of a run.

        Args:
            name: of what was built.
            run: as `watch` gives it.
        """
        from vramlab_course.plots.lanes import Lanes, Target

        is_above = run.peak_bytes > run.limit_bytes
        return Lanes(
            title=f"{name}: {self.score(run)}",
            time=self.time,
            spans=self.bars(run),
            curves=self.curves(run),
            target=Target(
                run.limit_bytes,
                self._target_end(run),
                "" if self.time_is_steps else f"{self.target_steps(run):,} {self.steps_name}",
            ),
            held=self.held,
            remark=f"At the peak: {self.largest(run)}." if is_above else "",
        )
