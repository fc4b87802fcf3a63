"""When a step's work runs: recorded events in time, by FLOPs and bytes over assumed rates.

    (rank,) = put_in_time([events], Rates.of(card, "NVLink"))
    rank.works, rank.held, rank.waiting

An operator takes as long as its FLOPs or its bytes do, whichever is longer; what a link carries, as
long as its bytes do. Work on a stream begins when the work before it on that stream has ended, and
all that the stream waits for. Collectives and sends of a rank share one link, in the order in which
they are issued; copies to and from the host have a link each. Python takes no time, and waits only
where the program does. Memory is put where the default stream gets to that place in the program.

The fractions of peak rates are those of `vramlab plan` (`vramlab.cuda_rules.durations`). What is
left out makes real steps longer: launches, small kernels that leave multiprocessors idle, latency,
and kernels of NCCL that take multiprocessors from those that compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

from vramlab.cuda_rules.collectives import Interconnect, link_seconds
from vramlab.cuda_rules.durations import (
    LINK,
    MATMUL,
    MEMORY,
    Arithmetic,
    compute_seconds,
    copy_seconds,
    memory_seconds,
)
from vramlab.gpu_model import GPUModel
from vramlab.measure.step_events import (
    DEFAULT_STREAM,
    StepEvent,
    StepMark,
    StepWait,
    StepWork,
    WorkKind,
)

_ARITHMETIC: dict[str | None, Arithmetic] = {"float16": "float16", "bfloat16": "bfloat16"}


@dataclass(frozen=True)
class Rates:
    """How fast a GPU computes, and its links carry."""

    gpu: GPUModel
    """Whose peak figures count."""
    link_bytes_per_s: float
    """What one GPU can send to others, at best."""
    matmul: float = MATMUL
    """Fraction of the peak FLOP/s."""
    memory: float = MEMORY
    """Fraction of the memory's bandwidth."""
    link: float = LINK
    """Fraction of the bandwidth of links."""

    @classmethod
    def of(cls, gpu: GPUModel, interconnect: Interconnect, matmul: float = MATMUL) -> Rates:
        """Use the bandwidth that the catalogue has for a link.

        Raises:
            ValueError: the GPU has no such link.
        """
        return cls(gpu, 1 / link_seconds(1, gpu, interconnect), matmul)

    def __str__(self) -> str:
        return (
            f"{self.gpu.name}: {self.matmul:.0%} of peak FLOP/s, {self.memory:.0%} of the memory's "
            f"bandwidth, {self.link:.0%} of {self.link_bytes_per_s / 1e9:.3g} GB/s between GPUs"
        )

    def seconds(self, work: StepWork) -> float:
        """Return how long a piece of work takes."""
        if work.kind == "operator":
            arithmetic = _ARITHMETIC.get(work.dtype, "float32")
            computed_s = compute_seconds(work.flops, self.gpu, arithmetic) if work.flops else 0.0
            return max(
                computed_s / self.matmul, memory_seconds(work.moved_bytes, self.gpu) / self.memory
            )
        if work.kind in ("to GPU", "to host"):
            return copy_seconds(work.moved_bytes, self.gpu) / self.link
        return work.moved_bytes / (self.link * self.link_bytes_per_s)


@dataclass(frozen=True)
class TimedWork:
    """Work in its place in time."""

    work: StepWork
    start_s: float
    end_s: float


@dataclass(frozen=True)
class TimedRank:
    """A rank's step in time."""

    works: tuple[TimedWork, ...]
    """In the order in which they were issued. Receives are not among them: another rank sends."""
    readings: tuple[tuple[float, int], ...]
    """What was allocated, in bytes, in the order of the program; several can be of one moment."""

    @property
    def end_s(self) -> float:
        """Return when the last work ends."""
        return max(each.end_s for each in self.works)

    @property
    def peak_bytes(self) -> int:
        """Return the most that is allocated."""
        return max(size_bytes for _, size_bytes in self.readings)

    def held(self) -> list[tuple[float, int]]:
        """List moments with what is allocated from each on: first the most of that moment."""
        held: list[tuple[float, int]] = []
        for moment, same in groupby(self.readings, key=lambda reading: reading[0]):
            sizes = [size_bytes for _, size_bytes in same]
            held += [(moment, size) for size in dict.fromkeys((max(sizes), sizes[-1]))]
        return held

    def computing(self) -> list[TimedWork]:
        """List what is computed on the default stream, without what other streams copy."""
        return [
            each
            for each in self.works
            if each.work.kind == "operator" and each.work.stream == DEFAULT_STREAM
        ]

    def carried(self) -> list[TimedWork]:
        """List what links carry, and what streams beside the default one copy for it."""
        there = set(map(id, self.computing()))
        return [each for each in self.works if id(each) not in there]


def put_in_time(ranks: Sequence[Sequence[StepEvent]], rates: Rates) -> list[TimedRank]:
    """Put recorded events in time.

    Args:
        ranks: the events of each rank, by its number. A rank alone stands for all: what it receives
            arrives when its own send has arrived, as the others do the same.
        rates: how fast all of them are.

    Raises:
        ValueError: ranks wait for what no rank sends; names them.
    """
    clocks = [_Clock(number, events, rates) for number, events in enumerate(ranks)]
    arrivals: dict[tuple[int, int], list[float]] = {}
    is_alone = len(clocks) == 1
    while not all(clock.is_done for clock in clocks):
        before = sum(clock.place for clock in clocks)
        for clock in clocks:
            clock.run(arrivals, is_alone)
        if sum(clock.place for clock in clocks) == before:
            stuck = ", ".join(str(clock.number) for clock in clocks if not clock.is_done)
            raise ValueError(f"ranks wait for what no rank sends: {stuck}")
    return [TimedRank(tuple(clock.works), tuple(clock.readings)) for clock in clocks]


@dataclass
class _Clock:
    """How far one rank is."""

    number: int
    events: Sequence[StepEvent]
    rates: Rates
    place: int = 0
    python_s: float = 0.0
    streams: dict[int, float] = field(default_factory=dict)
    links: dict[WorkKind, float] = field(default_factory=dict)
    ends: dict[int, float] = field(default_factory=dict)
    received: dict[int, tuple[int, int, float]] = field(default_factory=dict)
    """By handle: from whom, how many came before, and when it was asked for."""
    counts: dict[int, int] = field(default_factory=dict)
    works: list[TimedWork] = field(default_factory=list)
    readings: list[tuple[float, int]] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        return self.place == len(self.events)

    def run(self, arrivals: dict[tuple[int, int], list[float]], is_alone: bool) -> None:
        """Go on until something has to arrive first."""
        while not self.is_done:
            event = self.events[self.place]
            if isinstance(event, StepMark):
                self.ends[event.handle] = self._now(event.stream)
            elif isinstance(event, StepWait):
                end_s = self._end(event.handle, arrivals, is_alone)
                if end_s is None:
                    return
                if event.stream is None:
                    self.python_s = max(self.python_s, end_s)
                else:
                    self.streams[event.stream] = max(self._now(event.stream), end_s)
            else:
                self._work(event, arrivals, is_alone)
            self.place += 1

    def _now(self, stream: int) -> float:
        return max(self.python_s, self.streams.get(stream, 0.0))

    def _end(
        self, handle: int, arrivals: dict[tuple[int, int], list[float]], is_alone: bool
    ) -> float | None:
        """Return when what a handle stands for is over; None if that is not known yet."""
        if handle not in self.received:
            return self.ends.get(handle, 0.0)
        sender, place, asked_s = self.received[handle]
        there = arrivals.get((sender, self.number), [])
        if place < len(there):
            return max(asked_s, there[place])
        return asked_s if is_alone else None

    def _work(
        self, work: StepWork, arrivals: dict[tuple[int, int], list[float]], is_alone: bool
    ) -> None:
        start_s, begins_s = self._now(work.stream), self._now(DEFAULT_STREAM)
        if work.kind == "receive":
            sender = -1 if is_alone or work.peer is None else work.peer
            place = self.counts[sender] = self.counts.get(sender, -1) + 1
            self.received[work.handle] = sender, place, start_s
            self._hold(begins_s, work)
            return
        link: WorkKind = "collective" if work.kind == "send" else work.kind
        if link != "operator":
            start_s = max(start_s, self.links.get(link, 0.0))
        end_s = self.links[link] = start_s + self.rates.seconds(work)
        self.works.append(TimedWork(work, start_s, end_s))
        self.ends[work.handle] = end_s
        if link != "collective":  # which runs on a stream of NCCL's
            self.streams[work.stream] = end_s
        if work.kind == "send":
            key = (-1 if is_alone else self.number, self.number if is_alone else work.peer or 0)
            arrivals.setdefault(key, []).append(end_s)
        if work.blocks:
            self.python_s = end_s
        self._hold(begins_s, work)

    def _hold(self, begins_s: float, work: StepWork) -> None:
        self.readings += [
            (begins_s, work.peak_bytes),
            (self._now(DEFAULT_STREAM), work.after_bytes),
        ]
