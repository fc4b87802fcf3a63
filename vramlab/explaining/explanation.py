"""What `vramlab explain` reports about a snapshot, GPU by GPU."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from vramlab import catalogue
from vramlab.explaining import whatif
from vramlab.explaining.categories import Phases, category_of, in_backward, line_of
from vramlab.explaining.remedies import Remedy, remedies
from vramlab.explaining.traces import GPUTrace, Life, read_gpus, segments_at
from vramlab.explaining.unpickling import UnreadableSnapshot, load_snapshot, read_bytes
from vramlab.explaining.whatif import Outcome
from vramlab.table import Table
from vramlab.units import GIB, format_bytes

LINES_SHOWN = 8
LARGEST_LINES = 3
"""Left out together, to see what the rest needs."""

_IMBALANCED = 1.1
_A_LEAK_HAS = 8
_WORTH_NAMING = 0.05
"""A share of what is allocated."""


@dataclass(frozen=True)
class Share:
    """Part of what is allocated at the moment that is explained.

    Attributes:
        name: of a category or of a line.
        size_bytes: of its blocks.
        blocks: how many.
        category: what the blocks of a line are for, mostly.
    """

    name: str
    size_bytes: int
    blocks: int
    category: str = ""


@dataclass(frozen=True)
class Growth:
    """A line whose blocks accumulate over the trace.

    Attributes:
        line: which.
        blocks: how many of them are there in the end.
        size_bytes: of all of these.
        events_between: events from one to the next, on average.
    """

    line: str
    blocks: int
    size_bytes: int
    events_between: int


@dataclass(frozen=True)
class Pin:
    """A line whose blocks keep PyTorch from freeing segments that are partly free.

    Attributes:
        line: that has most of the bytes in each of these segments.
        segments: how many.
        free_bytes: free inside them.
        held_bytes: of the line's blocks in them.
    """

    line: str
    segments: int
    free_bytes: int
    held_bytes: int


@dataclass
class GPUExplanation:
    """One GPU's memory, explained.

    Attributes:
        device: its index.
        events: how many the trace has.
        moment: the event that is explained: that of the failure, or the peak.
        failed_line: the line whose request failed; '' if none did.
        request_bytes: what it asked the driver for.
        free_bytes: what the driver had left.
        allocated_bytes: at the moment.
        reserved_bytes: at the moment.
        peak_reserved_bytes: in the whole trace.
        older_bytes: allocated before the trace begins.
        capacity_bytes: what PyTorch could reserve; None: unknown.
        retries: releases of the cache to serve a request.
        released_bytes: by these.
        settings: as recorded.
        categories: what is allocated, by what it is for.
        lines: by the line that allocated it.
        growing: lines whose blocks accumulate.
        outcomes: the same requests under several settings.
        without_largest_bytes: the least memory that suffices without the blocks of the largest
            lines; None: no trace, or too long a one.
        pins: lines whose blocks keep segments that are partly free.
        remedies: changes to the program, each tried alone.
        driver_calls: segments allocated and freed in the trace.
        is_limited: whether a limit refused the request, though the GPU had enough memory.
        is_replayed: whether the replay reserves what was recorded.
    """

    device: int
    events: int
    moment: int
    failed_line: str
    request_bytes: int
    free_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    peak_reserved_bytes: int
    older_bytes: int
    capacity_bytes: int | None
    retries: int
    released_bytes: int
    settings: str
    categories: list[Share]
    lines: list[Share]
    growing: list[Growth]
    outcomes: list[Outcome] = field(default_factory=list)
    without_largest_bytes: int | None = None
    is_replayed: bool | None = None
    pins: list[Pin] = field(default_factory=list)
    remedies: list[Remedy] = field(default_factory=list)
    driver_calls: tuple[int, int] = (0, 0)
    is_limited: bool = False

    @property
    def unused_bytes(self) -> int:
        """Reserved at the moment, and not allocated."""
        return self.reserved_bytes - self.allocated_bytes

    @property
    def is_fragmented(self) -> bool:
        """Whether the request would have fitted into all that was unused, were it in one piece."""
        free_bytes = self.free_bytes
        if self.is_limited:
            free_bytes = (self.capacity_bytes or 0) - self.reserved_bytes
        return bool(self.failed_line) and self.unused_bytes + free_bytes >= self.request_bytes


@dataclass(frozen=True)
class Explanation:
    """A snapshot, explained. In a notebook it shows itself.

    Attributes:
        path: of the snapshot.
        gpus: those that hold or held something.
    """

    path: str
    gpus: Sequence[GPUExplanation]

    def to_dict(self) -> dict[str, Any]:
        """Return what `vramlab explain --json` prints."""
        return {"path": self.path, "gpus": [asdict(gpu) for gpu in self.gpus]}

    def __str__(self) -> str:
        """Return the report as text."""
        if not self.gpus:
            return f"{self.path}: no GPU memory was allocated\n"
        parts = ["\n".join(_text(gpu)) for gpu in self.gpus]
        compared = [(f"cuda:{gpu.device}", gpu) for gpu in self.gpus]
        if len(compared) > 1:
            parts.append(imbalance(compared))
        return "\n\n".join(parts) + "\n"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))


def imbalance(gpus: Sequence[tuple[str, GPUExplanation]]) -> str:
    """Show GPUs or ranks side by side, and how far the fullest is above the average."""
    rows = tuple(
        (
            name,
            f"{gpu.allocated_bytes / GIB:.2f}",
            f"{gpu.peak_reserved_bytes / GIB:.2f}",
            f"{gpu.retries}",
            "ran out of memory" if gpu.failed_line else "",
        )
        for name, gpu in gpus
    )
    header = ("GPU", "allocated", "peak reserved", "retries", "")
    sizes = [gpu.allocated_bytes for _, gpu in gpus]
    mean_bytes = sum(sizes) / len(sizes)
    shown = f"{Table('GPUs side by side (GiB)', header, rows)}"
    if not mean_bytes or max(sizes) < _IMBALANCED * mean_bytes:
        return shown
    fullest, _ = max(gpus, key=lambda each: each[1].allocated_bytes)
    return (
        f"{shown}\n{fullest} has {max(sizes) / mean_bytes:.1f} times the average: the work is not "
        "split evenly."
    )


def explain(path: str) -> Explanation:
    """Explain a memory snapshot: what held the GPU's memory, and what would have helped.

    Args:
        path: what `torch.cuda.memory._dump_snapshot` wrote, also compressed by gzip or xz; `-` for
            standard input.

    Raises:
        UnreadableSnapshot: the file is no memory snapshot.
    """
    return explain_data(read_bytes(path), path)


def explain_data(data: bytes, path: str) -> Explanation:
    """Explain a snapshot that has been read; see `explain`."""
    return explain_snapshot(load_snapshot(data, path), path)


def explain_snapshot(snapshot: Mapping[str, Any], path: str) -> Explanation:
    """Explain a snapshot that has been loaded; see `explain`."""
    try:
        return Explanation(path, [_explained(gpu) for gpu in read_gpus(snapshot)])
    except UnreadableSnapshot as error:
        raise UnreadableSnapshot(f"{path}: {error}") from None
    except (KeyError, TypeError, AttributeError, OverflowError, IndexError) as error:
        raise UnreadableSnapshot(
            f"{path}: its events or stacks are not those of a memory snapshot ({error!r}). "
            "Write one with torch.cuda.memory._dump_snapshot('snapshot.pickle')"
        ) from error


def _explained(gpu: GPUTrace) -> GPUExplanation:
    moment = gpu.moment
    alive = gpu.alive(moment)
    failure = gpu.failures[0] if gpu.failures else None
    phases = Phases.of(gpu)
    explained = GPUExplanation(
        device=gpu.device,
        events=len(gpu.events),
        moment=moment,
        failed_line=line_of(failure.frames) if failure else "",
        request_bytes=failure.request_bytes if failure else 0,
        free_bytes=failure.free_bytes if failure else 0,
        allocated_bytes=gpu.allocated_bytes[moment],
        reserved_bytes=gpu.reserved_bytes[moment],
        peak_reserved_bytes=max(gpu.reserved_bytes),
        older_bytes=gpu.allocated_bytes[0],
        capacity_bytes=gpu.capacity_bytes,
        retries=len(gpu.retries),
        released_bytes=sum(retry.released_bytes for retry in gpu.retries),
        settings=gpu.settings,
        categories=_shares((category_of(life, phases), life, "") for life in alive),
        lines=_shares((line_of(life.frames), life, category_of(life, phases)) for life in alive),
        growing=_growing(gpu),
        pins=_pins(gpu, alive),
        driver_calls=(_count(gpu, "segment_alloc"), _count(gpu, "segment_free")),
        is_limited=failure is not None and failure.is_limited,
    )
    if any(life.born >= 0 for life in gpu.lives):
        explained.outcomes = list(whatif.outcomes(gpu))
        explained.remedies = remedies(gpu)
        recorded = whatif.Replay(gpu).under(gpu.settings, gpu.capacity_bytes)
        explained.is_replayed = recorded.reserved_bytes == explained.peak_reserved_bytes
        largest = {share.name for share in explained.lines[:LARGEST_LINES]}
        left_out = {life.born for life in gpu.lives if line_of(life.frames) in largest} - {-1}
        if (
            len(explained.lines) > LARGEST_LINES
            and explained.outcomes[0].smallest_bytes is not None
        ):
            rest = whatif.Replay(gpu, left_out)
            enough_bytes = rest.under(gpu.settings).reserved_bytes
            explained.without_largest_bytes = rest.smallest(gpu.settings, enough_bytes)
    return explained


def _count(gpu: GPUTrace, action: str) -> int:
    return sum(event["action"] == action for event in gpu.events)


def _pins(gpu: GPUTrace, alive: Iterable[Life]) -> list[Pin]:
    """Find which lines' blocks are in segments that are partly free, the worst line first."""
    segments = segments_at(gpu, gpu.moment)
    starts = sorted(segments)
    held: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for life in alive:
        place = bisect_right(starts, life.address) - 1
        if place >= 0 and life.address < starts[place] + segments[starts[place]]:
            held[starts[place]][line_of(life.frames)] += life.size_bytes
    by_line: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for start, lines in held.items():
        free_bytes = segments[start] - sum(lines.values())
        if free_bytes > 0:
            most = max(lines, key=lines.__getitem__)
            by_line[most].append((free_bytes, lines[most]))
    pins = [
        Pin(line, len(found), sum(free for free, _ in found), sum(used for _, used in found))
        for line, found in by_line.items()
    ]
    return sorted(pins, key=lambda pin: -pin.free_bytes)


def _shares(named: Iterable[tuple[str, Life, str]]) -> list[Share]:
    """Add up blocks by name, the largest first."""
    blocks: dict[str, list[tuple[Life, str]]] = defaultdict(list)
    for name, life, category in named:
        blocks[name].append((life, category))
    shares = []
    for name, found in blocks.items():
        by_category: dict[str, int] = defaultdict(int)
        for life, category in found:
            by_category[category] += life.size_bytes
        mostly = max(by_category, key=by_category.__getitem__)
        size_bytes = sum(by_category.values())
        shares.append(Share(f"{name}", size_bytes, len(found), f"{mostly}"))
    return sorted(shares, key=lambda share: -share.size_bytes)


def _growing(gpu: GPUTrace) -> list[Growth]:
    """Find lines that add a block of one size step after step, and free none of them.

    A backward pass separates steps. Layers of one forward pass add blocks as well, without a
    backward pass between them.
    """
    kept: dict[tuple[str, int], list[int]] = defaultdict(list)
    backward = [0]
    for life in gpu.lives:
        if life.born < 0:
            continue
        if in_backward(life.frames):
            backward.append(life.born)
        elif life.freed is None:
            kept[line_of(life.frames), life.size_bytes].append(life.born)
    found = []
    for (line, size_bytes), born in kept.items():
        steps = len({bisect_left(backward, event) for event in born})
        if steps >= _A_LEAK_HAS:
            between = (born[-1] - born[0]) // (len(born) - 1)
            found.append(Growth(line, len(born), size_bytes * len(born), between))
    return sorted(found, key=lambda growth: -growth.size_bytes)


# ---- As text ----


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB // 10 else format_bytes(size_bytes)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _text(gpu: GPUExplanation) -> Iterator[str]:
    yield from _headline(gpu)
    yield ""
    header: tuple[str, ...] = ("category", "GiB", "blocks")
    yield f"{Table('Allocated at that moment', header, _rows(gpu.categories))}"
    yield ""
    lines = gpu.lines[:LINES_SHOWN]
    header = ("line", "GiB", "blocks", "category")
    yield f"{Table('Lines that allocated most', header, _rows(lines, True))}"
    for growth in gpu.growing[:LARGEST_LINES]:
        yield (
            f"Possible leak: {growth.line} allocated {growth.blocks} blocks that were never freed "
            f"({_gib(growth.size_bytes)}), one every {growth.events_between} events. Does it "
            "append tensors to a list?"
        )
    pins = [pin for pin in gpu.pins if pin.free_bytes > _WORTH_NAMING * gpu.reserved_bytes]
    for pin in pins[:LARGEST_LINES]:
        yield (
            f"Fragmentation: {_gib(pin.free_bytes)} are free in {pin.segments} segment"
            f"{'s' * (pin.segments != 1)} pinned by {_gib(pin.held_bytes)} of {pin.line}"
        )
    if gpu.outcomes:
        yield ""
        yield from _settings(gpu)
    if gpu.remedies:
        yield ""
        yield f"{_tried_changes(gpu)}"
    yield from _advice(gpu)


def _rows(shares: Iterable[Share], with_category: bool = False) -> tuple[tuple[str, ...], ...]:
    return tuple(
        (share.name, f"{share.size_bytes / GIB:.2f}", f"{share.blocks}")
        + ((share.category,) if with_category else ())
        for share in shares
    )


def _headline(gpu: GPUExplanation) -> Iterator[str]:
    where = f"event {gpu.moment} of {gpu.events}"
    if gpu.failed_line:
        yield f"cuda:{gpu.device} ran out of memory at {where}: {gpu.failed_line}"
        yield (
            f"  requested {_gib(gpu.request_bytes)}; allocated {_gib(gpu.allocated_bytes)}, "
            f"reserved {_gib(gpu.reserved_bytes)}, free on the GPU {_gib(gpu.free_bytes)}"
        )
        if gpu.is_limited:
            over_bytes = gpu.reserved_bytes + gpu.request_bytes
            yield (
                "  The GPU had enough: a limit refused the request, between "
                f"{_gib(gpu.capacity_bytes or 0)} and {_gib(over_bytes)} "
                "(torch.cuda.set_per_process_memory_fraction)"
            )
        else:
            yield f"  PyTorch could reserve {_gib(gpu.capacity_bytes or 0)}"
        free = "what the limit left" if gpu.is_limited else "what is free on the GPU"
        yield (
            f"  reserved but unallocated: {_gib(gpu.unused_bytes)}. "
            + (
                f"With {free}, that is enough for the request, but in pieces: this is "
                "fragmentation."
                if gpu.is_fragmented
                else f"Even with {free}, that is less than was requested: this is not "
                "fragmentation."
            )
        )
    else:
        share = gpu.unused_bytes / gpu.reserved_bytes if gpu.reserved_bytes else 0
        at = f" at {where}" if gpu.events else ", without a trace"
        yield f"cuda:{gpu.device}: peak allocated memory{at}: {_gib(gpu.allocated_bytes)}"
        yield (
            f"  reserved then: {_gib(gpu.reserved_bytes)}, of which {share:.0%} is unallocated; "
            f"peak reserved: {_gib(gpu.peak_reserved_bytes)}"
        )
    if gpu.retries:
        yield (
            f"  PyTorch released its cache {_times(gpu.retries)} to serve a request "
            f"({_gib(gpu.released_bytes)} in total); each release waits for the GPU. The trace has "
            f"{gpu.driver_calls[0]} cudaMalloc and {gpu.driver_calls[1]} cudaFree"
        )
    if gpu.older_bytes:
        yield f"  {format_bytes(gpu.older_bytes)} were allocated before the trace began"


def _settings(gpu: GPUExplanation) -> Iterator[str]:
    rows = []
    for outcome in gpu.outcomes:
        name = outcome.settings or "default"
        rows.append(
            (
                f"{name} (recorded)" if outcome.settings == gpu.settings else name,
                f"{outcome.reserved_bytes / GIB:.2f}",
                "" if outcome.smallest_bytes is None else f"{outcome.smallest_bytes / GIB:.2f}",
                "" if outcome.retries is None else f"{outcome.retries}",
                {None: "", True: "yes", False: "no"}[outcome.is_enough],
            )
        )
    header = ("setting", "peak reserved", "least memory", "retries", "fits")
    caption = "The same allocations replayed under other allocator settings (GiB)"
    yield f"{Table(caption, header, tuple(rows))}"
    yield (
        "peak reserved: on a GPU with unlimited memory; least memory: smallest GPU memory that is "
        "enough; retries: releases of the cache on this GPU; fits: on this GPU"
    )
    if not gpu.is_replayed:
        yield (
            "The table is an estimate: a replay with the recorded setting does not reserve exactly "
            "what was recorded, because the trace is incomplete or uses private pools."
        )


def _advice(gpu: GPUExplanation) -> Iterator[str]:
    tips = [*_setting_advice(gpu), *_program_advice(gpu)]
    if tips:
        yield ""
        yield "What would help"
        yield from (f"  - {tip}" for tip in tips)


def _setting_advice(gpu: GPUExplanation) -> Iterator[str]:
    searched = [outcome for outcome in gpu.outcomes if outcome.smallest_bytes is not None]
    recorded = next((each for each in gpu.outcomes if each.settings == gpu.settings), None)
    if recorded is None:
        return
    better = [each for each in gpu.outcomes if each.settings and _is_better(each, recorded)]
    if better:
        best = min(better, key=lambda each: (each.retries or 0, each.settings))
        what = (
            "avoids the out-of-memory error on this GPU"
            if gpu.failed_line
            else f"releases the cache {_times(best.retries or 0)}, not {recorded.retries}"
        )
        yield f'export PYTORCH_CUDA_ALLOC_CONF="{best.settings}" {what}'
        if "garbage_collection" in best.settings:
            yield (
                "garbage_collection_threshold takes effect with a memory limit only: call "
                "torch.cuda.set_per_process_memory_fraction(0.99)"
            )
    elif gpu.failed_line:
        yield "no allocator setting avoids the out-of-memory error on this GPU"
    yield from _less_memory(gpu, recorded, bool(better))
    if searched:
        least = _best(searched)
        fitting = _smallest_gpu(least.smallest_bytes or 0)
        if fitting:
            yield (
                f"the smallest common GPU with enough memory is {fitting} "
                f"({_gib(least.smallest_bytes or 0)} with {least.settings or 'the defaults'})"
            )


def _tried_changes(gpu: GPUExplanation) -> Table:
    header = ("change", "frees GiB", "peak then")
    rows = tuple(
        (each.change, f"{each.freed_bytes / GIB:.2f}", f"{each.peak_bytes / GIB:.2f}")
        for each in gpu.remedies[:LINES_SHOWN]
    )
    return Table("Changes to the program, each tried alone on this trace", header, rows)


def _less_memory(gpu: GPUExplanation, recorded: Outcome, is_named: bool) -> Iterator[str]:
    """Name a setting that needs clearly less memory, though the recorded one did not fail."""
    now_bytes = recorded.smallest_bytes
    if now_bytes is None or is_named:
        return
    best = _best(each for each in gpu.outcomes if each.smallest_bytes is not None)
    if best.settings and (best.smallest_bytes or 0) < (1 - _WORTH_NAMING) * now_bytes:
        yield (
            f'export PYTORCH_CUDA_ALLOC_CONF="{best.settings}" needs '
            f"{_gib(best.smallest_bytes or 0)}, not {_gib(now_bytes)}"
        )


def _best(outcomes: Iterable[Outcome]) -> Outcome:
    """Choose what needs least. Of nearly equal settings, take the default or expandable segments.

    Those two depend least on the sizes of this trace.
    """
    found = list(outcomes)
    least_bytes = min(each.smallest_bytes or 0 for each in found)
    near = [each for each in found if (each.smallest_bytes or 0) <= 1.01 * least_bytes]
    general = ("", "expandable_segments:True")
    return min(near, key=lambda each: (each.settings not in general, each.smallest_bytes or 0))


def _is_better(other: Outcome, recorded: Outcome) -> bool:
    """Whether another setting serves what the recorded one could not, or with fewer releases."""
    if not other.is_enough:
        return False
    return not recorded.is_enough or (other.retries or 0) < (recorded.retries or 0)


def _smallest_gpu(needed_bytes: int) -> str:
    fitting = [
        gpu for gpu in catalogue.common() if gpu.total_bytes - gpu.context_bytes >= needed_bytes
    ]
    if not fitting:
        return ""
    return min(fitting, key=lambda gpu: gpu.total_bytes).name


def _program_advice(gpu: GPUExplanation) -> Iterator[str]:
    if gpu.without_largest_bytes is not None:
        yield (
            f"without the blocks of the {LARGEST_LINES} largest lines, "
            f"{_gib(gpu.without_largest_bytes)} would be enough"
        )
