"""Workshops about what ranks send each other: each rank is a process with its own GPU.

    trial=of_ranks(
        4,
        build=_shards,                 # what a rank has
        step=_step,                    # calls the program on a rank; gives its results, on the host
        least_sent=_gradients,         # what every rank has to send
        reference=...,
        ...
    )

A rank's run is one like any other (`repair.py`): its process checks its memory and work, and
collects its results. The picture shows rank 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from vramlab.units import format_bytes
from vramlab_classroom.judge.task import Config, NotFixed
from vramlab_course.tasks.building import BARE_T4, Building, Curves, operators
from vramlab_course.tasks.rank_network import CAN_FORK, Link, in_processes, in_threads
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.run_record import RunRecord
from vramlab_course.tasks.work import Work

if TYPE_CHECKING:
    from vramlab_course.plots.lanes import Span

_IN_THIS_PROCESS: ContextVar[bool] = ContextVar("in this process", default=False)


@contextmanager
def in_this_process() -> Iterator[None]:
    """Let ranks be threads: a kernel, where learners watch their own, should not fork."""
    token = _IN_THIS_PROCESS.set(True)
    try:
        yield
    finally:
        _IN_THIS_PROCESS.reset(token)


def can_be_processes() -> bool:
    """Return whether ranks are processes here."""
    return CAN_FORK and not _IN_THIS_PROCESS.get()


def each_rank(ranks: int, ask: Callable[[int], Any]) -> list[Any]:
    """Ask each rank, in a separate process where possible.

    Args:
        ranks: how many.
        ask: called with the rank; returns plain data.
    """
    if not can_be_processes():
        return [ask(rank) for rank in range(ranks)]
    return in_processes(ranks, lambda link: ask(link.rank))[0]


@dataclass(frozen=True)
class RankRun:
    """The part of a rank's run that its process can send."""

    results: Any
    peak_bytes: int
    work: Work
    record: RunRecord


def bars_of_rank_0(run: Run) -> Sequence[Span]:
    """Return the operators that rank 0 has run."""
    return operators(run, gpu=0)


def held_by_rank_0(run: Run) -> Curves:
    """Return the bytes that rank 0 has held, by tick."""
    return {"rank 0": list(enumerate(run.record.held_bytes[0]))}


def collectives(run: Run) -> int:
    """Count the collectives of the rank that has issued most."""
    return max(len(messages) for messages in run.sent)


@dataclass(frozen=True, kw_only=True)
class RanksBuilding(Building):
    """What ranks do together, with targets for each of them. There is one result for each rank."""

    least_sent: Callable[[Run], Mapping[str, tuple[int, str]]]
    """By kind of collective: the bytes that a rank of every right program sends at least, and what
    they are."""

    most_flops: float
    """A program may take at most this many times our operations. With more, a rank could do the
    others' work instead of receiving its results."""

    def _run(self, run: Run) -> Run:
        if not can_be_processes():
            return super()._run(run)
        own_run = super()._run

        def rank(link: Link) -> RankRun:
            done = own_run(replace(run, link=link))
            work = replace(done.work, watchers=[])
            (results,) = done.results
            return RankRun(results, done.peak_bytes, work, done.record)

        done, run.sent = in_processes(self.ranks, rank)
        run.results = [each.results for each in done]
        run.peaks_bytes = [each.peak_bytes for each in done]
        run.record = done[0].record
        for each in done:
            run.work.add(each.work)
        return run

    def _require(self, run: Run) -> None:
        self._require_sent(run)
        super()._require(run)
        run.require_no_more_flops(
            "a rank computes what another rank has computed. Let that rank send it.",
            self.most_flops,
        )

    def _require_sent(self, run: Run) -> None:
        for rank, messages in enumerate(run.sent):
            sent: Counter[str] = Counter()
            for message in messages:
                sent[message.kind] += message.size_bytes
            for kind, (least_bytes, what) in self.least_sent(run).items():
                if sent[kind] < least_bytes:
                    raise NotFixed(
                        f"Rank {rank} sent {format_bytes(sent[kind])} by {kind} of the "
                        f"{format_bytes(least_bytes)} that {what}. Where does the rest come from?"
                    )

    def watch(self, answer: Any, case: Config) -> Run:
        """Run an answer, to be drawn: see `Building.watch`."""
        with in_this_process():
            return super().watch(answer, case)


def of_ranks(
    ranks: int,
    *,
    build: Callable[..., Sequence[Any]],
    step: Callable[..., Any],
    room_bytes: int,
    **others: Any,
) -> RanksBuilding:
    """Make the trial of a workshop about what ranks send each other.

    Args:
        ranks: how many.
        build: `build(run, rank, **case)` makes what a rank has, on its GPU.
        step: `step(run, link, *inputs)` runs a rank's part; gives its results, on the host. What
            comes from other ranks comes through the link.
        room_bytes: what an answer may hold beyond our own program.
        others: of `RanksBuilding`.
    """

    def build_here(run: Run, **case: Any) -> Sequence[Any]:
        here = range(ranks) if run.link is None else [run.link.rank]
        built = [build(run, rank, **case) for rank in here]
        for inputs in built:
            run.note_given(inputs)
        return built

    def call(run: Run) -> list[Any]:
        if run.link is not None:
            return [step(run, run.link, *run.inputs[0])]
        results, run.sent = in_threads(ranks, lambda link: step(run, link, *run.inputs[link.rank]))
        return results

    return RanksBuilding(
        **{
            "gpu": BARE_T4.but(count=ranks),
            "ranks": ranks,
            "build": build_here,
            "call": call,
            "limit": lambda own: own.peak_bytes + room_bytes,
            "steps": collectives,
            "most_steps": collectives,
            "bars": bars_of_rank_0,
            "curves": held_by_rank_0,
            "step_ends": lambda run: [each.end for each in run.record.marks if each.gpu == 0],
            **others,
        }
    )
