"""Compare the virtual GPU with a recording: every number of every stage, and where traces part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from vramlab.recordings.alignment import (
    Divergence,
    ExtraAllocation,
    extra_allocations,
    first_divergence,
    possibly_allocated,
    requests_digest,
    same_requests,
    stages_of,
)
from vramlab.recordings.entries import CONTEXT
from vramlab.recordings.known import OUTCOME, QUANTITIES, SEGMENT_ORDER, known_difference
from vramlab.recordings.store import (
    OK,
    RecordedEntry,
    RecordedStage,
    RecordingError,
    RecordingFile,
    trace_of,
)
from vramlab.recordings.trace import Trace
from vramlab.recordings.virtual_counterpart import measure_on_twin

_NUMBERS: Mapping[str, Callable[[RecordedStage], int]] = {
    "allocated": lambda stage: stage.allocated_bytes,
    "peak": lambda stage: stage.peak_bytes,
    "reserved": lambda stage: stage.reserved_bytes,
    "peak reserved": lambda stage: stage.peak_reserved_bytes,
}
assert tuple(_NUMBERS) == QUANTITIES


@dataclass(frozen=True)
class Number:
    """One number of one stage, on both GPUs, in bytes."""

    stage: str
    quantity: str
    recorded_bytes: int
    virtual_bytes: int
    known: str | None
    """Name of the known difference that is the reason, if they differ and there is one."""

    @property
    def difference_bytes(self) -> int:
        """Virtual less recorded."""
        return self.virtual_bytes - self.recorded_bytes

    @property
    def relative(self) -> float:
        """The difference as a fraction of what was recorded."""
        if self.difference_bytes == 0:
            return 0.0
        return self.difference_bytes / self.recorded_bytes if self.recorded_bytes else float("inf")


@dataclass(frozen=True)
class Comparison:
    """The comparison of one entry."""

    entry: str
    numbers: tuple[Number, ...] = ()
    """Of all stages that both have."""
    problem: str | None = None
    """Why there is nothing to compare, or what else differs."""
    divergence: Divergence | None = None
    """Where the traces part first, if they do."""
    extra_allocations: tuple[ExtraAllocation, ...] = ()
    """Allocations of that stage that only one of the two has."""
    statistics: tuple[tuple[str, str, int, int], ...] = ()
    """Other statistics that differ: stage, key of memory_stats(), recorded, virtual."""
    skipped: str | None = None
    """Why it was not compared: the recorded entry has no result."""

    @property
    def differing(self) -> tuple[Number, ...]:
        """The numbers that are not equal."""
        return tuple(number for number in self.numbers if number.difference_bytes)

    @property
    def equal(self) -> bool:
        """Return whether everything is equal to the byte."""
        return self.problem is None and not self.differing and self.skipped is None

    @property
    def unexplained(self) -> bool:
        """Return whether something differs for no known reason."""
        return self.problem is not None or any(n.known is None for n in self.differing)

    @property
    def worst(self) -> float:
        """The largest relative difference of its numbers, without sign."""
        return max((abs(number.relative) for number in self.numbers), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can carry, in bytes."""
        return {
            "entry": self.entry,
            "equal": self.equal,
            "unexplained": self.unexplained,
            "worst": self.worst,
            "problem": self.problem,
            "skipped": self.skipped,
            "numbers": [
                {**asdict(number), "difference_bytes": number.difference_bytes}
                for number in self.numbers
            ],
            "divergence": None if self.divergence is None else _divergence_data(self.divergence),
            "extra_allocations": [
                {**asdict(each), "origin": each.origin._asdict()} for each in self.extra_allocations
            ],
            "statistics": [list(each) for each in self.statistics],
        }


def compare(
    recording: RecordingFile,
    names: Sequence[str],
    measure: Callable[[RecordingFile, str], dict[str, Any]] = measure_on_twin,
) -> Iterator[Comparison]:
    """Run each entry on the virtual GPU and compare; yields one entry after the other.

    Args:
        names: ids of entries of the recording.
        measure: runs one, or finds it (`recorded_in`); gives what `worker.as_data` makes.
    """
    traces = recording.read_traces(names)
    for name in names:
        entry = recording.entries[name]
        if name == CONTEXT:
            continue
        refused = recording.is_computed and entry.is_refused_by_torch
        if entry.status != OK and not refused:
            yield Comparison(name, skipped=f"recorded as {entry.status}: {entry.error}")
            continue
        try:
            answer = measure(recording, name)
        except Exception as error:
            told = f"{type(error).__name__}: {error}"
            same = refused and _kind_of_error(told) == _kind_of_error(entry.error)
            yield Comparison(name, problem=None if same else f"does not run there: {told}")
            continue
        if refused:
            yield Comparison(name, problem=f"runs there, and did not here: {entry.error}")
        else:
            yield _compare_entry(name, entry, traces.get(name), answer)


def _kind_of_error(told: str | None) -> str:
    """Return the name of an exception, from its name and text."""
    return (told or "").partition(":")[0]


def recorded_in(
    other: RecordingFile, names: Sequence[str]
) -> Callable[[RecordingFile, str], dict[str, Any]]:
    """Take from another recording what `compare` would measure on the virtual GPU.

    Args:
        other: such as one of the native engine.
        names: of the entries that will be wanted.
    """
    traces = other.read_traces(names)

    def answer(recording: RecordingFile, name: str) -> dict[str, Any]:
        entry = other.entries.get(name)
        if entry is None or entry.status != OK:
            why = "" if entry is None else f": {entry.error}"
            raise RecordingError(f"{other.path.name} has no result of it{why}")
        line = traces.get(name)
        trace = Trace(()).to_dict() if line is None else line["trace"]
        statistics = {"keys": [], "stages": []} if line is None else line["statistics"]
        return {"entry": entry.to_dict(), "trace": trace, "statistics": statistics}

    return answer


def _compare_entry(
    name: str, entry: RecordedEntry, line: Mapping[str, Any] | None, answer: Mapping[str, Any]
) -> Comparison:
    virtual = RecordedEntry.from_dict(answer["entry"])
    numbers = tuple(_numbers(name, entry.stages, virtual.stages))
    problem = _problem(name, entry.stages, virtual.stages)
    differs = problem is not None or any(number.difference_bytes for number in numbers)
    divergence = None
    extra: list[ExtraAllocation] = []
    if line is not None and entry.trace_error is None:
        ours, theirs = trace_of(line), Trace.from_dict(answer["trace"])
        divergence = _first_divergence(ours, theirs)
        if divergence is not None and differs:
            extra = extra_allocations(ours, theirs, divergence.stage)
            if same_requests(ours, theirs):
                numbers = tuple(_by_segments(number, theirs) for number in numbers)
    elif differs and entry.requests is not None:
        theirs = Trace.from_dict(answer["trace"])
        if requests_digest(theirs) == entry.requests:
            numbers = tuple(_by_segments(number, theirs) for number in numbers)
    elif differs:
        problem = problem or f"differs, and has no trace that says where: {entry.trace_error}"
    statistics = () if line is None else tuple(_statistics(entry, line, answer))
    return Comparison(name, numbers, problem, divergence, tuple(extra), statistics)


def _by_segments(number: Number, virtual: Trace) -> Number:
    """Name a number that differs by where segments lie, if that can be all.

    It cannot where another block is in use at the stage's end: one that is given back between two
    requests may be given back in the stage, or after it.
    """
    if number.difference_bytes == 0:
        return number
    if number.quantity == "allocated":
        possible = possibly_allocated(virtual, number.stage)
        if possible is not None and not possible[0] <= number.recorded_bytes <= possible[1]:
            return number
    return replace(number, known=SEGMENT_ORDER.name)


def _numbers(
    name: str, recorded: Sequence[RecordedStage], virtual: Sequence[RecordedStage]
) -> Iterator[Number]:
    by_name = {stage.name: stage for stage in virtual}
    for stage in recorded:
        other = by_name.get(stage.name)
        if other is None:
            continue
        for quantity, number in _NUMBERS.items():
            known = None
            if number(stage) != number(other):
                known = known_difference(name, stage.name, quantity)
            yield Number(
                stage.name, quantity, number(stage), number(other), known.name if known else None
            )


def _problem(
    name: str, recorded: Sequence[RecordedStage], virtual: Sequence[RecordedStage]
) -> str | None:
    """Describe what differs in the stages themselves, for no known reason."""
    ours, theirs = ({stage.name: stage for stage in stages} for stages in (recorded, virtual))
    unknown = [
        stage
        for stage in dict.fromkeys((*ours, *theirs))
        if _outcome(ours.get(stage)) != _outcome(theirs.get(stage))
        and known_difference(name, stage, OUTCOME) is None
    ]
    if [each for each in ours if each in theirs] != [each for each in theirs if each in ours]:
        return (
            f"has its stages in another order: {', '.join(ours)} recorded, "
            f"{', '.join(theirs)} virtual"
        )
    if unknown:
        return "; ".join(
            f"stage {stage!r} {_outcome(ours.get(stage))} recorded, "
            f"{_outcome(theirs.get(stage))} virtual"
            for stage in unknown
        )
    return None


def _outcome(stage: RecordedStage | None) -> str:
    if stage is None:
        return "did not run"
    return "ended well" if stage.error is None else f"ended in {_kind_of_error(stage.error)}"


def _first_divergence(recorded: Trace, virtual: Trace) -> Divergence | None:
    for stage in stages_of(recorded, virtual):
        divergence = first_divergence(recorded, virtual, stage)
        if divergence is not None:
            return divergence
    return None


def _statistics(
    entry: RecordedEntry, line: Mapping[str, Any], answer: Mapping[str, Any]
) -> Iterator[tuple[str, str, int, int]]:
    ours, theirs = line["statistics"], answer["statistics"]
    for stage, left, right in zip(entry.stages, ours["stages"], theirs["stages"], strict=False):
        virtual = dict(zip(theirs["keys"], right, strict=True))
        for key, recorded in zip(ours["keys"], left, strict=True):
            if key in virtual and virtual[key] != recorded:
                yield stage.name, key, recorded, virtual[key]


def _divergence_data(divergence: Divergence) -> dict[str, Any]:
    data: dict[str, Any] = {
        "stage": divergence.stage,
        "event": divergence.number,
        "allocation": divergence.allocation,
        "what": divergence.what,
    }
    for side in ("recorded", "virtual", "before"):
        event = getattr(divergence, side)
        data[side] = None if event is None else {**asdict(event), "origin": event.origin._asdict()}
    return data
