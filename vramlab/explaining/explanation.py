"""What `vramlab explain` reports about a snapshot, GPU by GPU."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import Any

from vramlab.explaining import whatif
from vramlab.explaining.categories import (
    NO_LINE,
    OLDER_LINE,
    Category,
    Phases,
    category_of,
    in_backward,
    line_of,
    line_of_block,
)
from vramlab.explaining.layout import segments_at
from vramlab.explaining.remedies import Remedy, remedies
from vramlab.explaining.shown import LARGEST_LINES, as_html, as_text
from vramlab.explaining.timelines import drawn
from vramlab.explaining.traces import Failure, GPUTrace, Life, read_gpus
from vramlab.explaining.unpickling import UnreadableSnapshot, load_snapshot, read_bytes
from vramlab.explaining.whatif import Outcome

_A_LEAK_HAS = 8


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
    def largest_lines(self) -> list[str]:
        """Those that are left out together, to see what the rest needs."""
        inside = (line.name for line in self.lines if line.name != OLDER_LINE)
        return list(islice(inside, LARGEST_LINES))

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
        traces: of these, those that have events; for timelines.
    """

    path: str
    gpus: Sequence[GPUExplanation]
    traces: Sequence[GPUTrace] = field(default=(), repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return what `vramlab explain --json` prints."""
        return {"path": self.path, "gpus": [asdict(gpu) for gpu in self.gpus]}

    def __str__(self) -> str:
        """Return the report as text."""
        return as_text(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        timelines = [drawn(gpu, None) for gpu in self.traces]
        return "\n".join([as_html(self), *timelines])


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
        gpus = read_gpus(snapshot)
        return Explanation(
            path, [_explained(gpu) for gpu in gpus], [gpu for gpu in gpus if gpu.events]
        )
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
        failed_line=_line_of_failure(failure) if failure else "",
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
        lines=_shares((line_of_block(life), life, category_of(life, phases)) for life in alive),
        growing=_growing(gpu),
        pins=_pins(gpu, alive),
        driver_calls=(_count(gpu, "segment_alloc"), _count(gpu, "segment_free")),
        is_limited=failure is not None and failure.is_limited,
    )
    has_requests = any(life.born >= 0 for life in gpu.lives)
    if not has_requests:
        for shares, name in (explained.categories, Category.UNKNOWN), (explained.lines, NO_LINE):
            _rename_older(shares, f"{name}")
    if has_requests:
        explained.outcomes = list(whatif.outcomes(gpu))
        explained.remedies = remedies(gpu)
        explained.is_replayed = explained.outcomes[0].is_as_recorded
        largest = explained.largest_lines
        left_out = {life.born for life in gpu.lives if line_of_block(life) in largest} - {-1}
        has_rest = any(line.name not in (OLDER_LINE, *largest) for line in explained.lines)
        if has_rest and explained.outcomes[0].smallest_bytes is not None:
            rest = whatif.Replay(gpu, left_out)
            enough_bytes = rest.under(gpu.settings).reserved_bytes
            explained.without_largest_bytes = rest.smallest(gpu.settings, enough_bytes)
    return explained


def _line_of_failure(failure: Failure) -> str:
    return line_of(failure.frames) if failure.frames else NO_LINE


def _rename_older(shares: list[Share], name: str) -> None:
    """Without a trace, nothing is older than it: these blocks have no stack."""
    old = (OLDER_LINE, f"{Category.OLDER}")
    shares[:] = [
        replace(
            share,
            name=name if share.name in old else share.name,
            category=f"{Category.UNKNOWN}" if share.category in old else share.category,
        )
        for share in shares
    ]


def _count(gpu: GPUTrace, action: str) -> int:
    return sum(event["action"] == action for event in gpu.events)


def _pins(gpu: GPUTrace, alive: Iterable[Life]) -> list[Pin]:
    """Find which lines' blocks are in segments that are partly free, the worst line first."""
    segments = segments_at(gpu, gpu.moment)
    starts = sorted(segments)
    held: dict[int, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for life in alive:
        place = bisect_right(starts, life.address) - 1
        if place >= 0 and life.address < starts[place] + segments[starts[place]].size_bytes:
            held[starts[place]][line_of_block(life)] += life.size_bytes
    by_line: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for start, lines in held.items():
        free_bytes = segments[start].size_bytes - sum(lines.values())
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
            kept[line_of_block(life), life.size_bytes].append(life.born)
    found = []
    for (line, size_bytes), born in kept.items():
        steps = len({bisect_left(backward, event) for event in born})
        if steps >= _A_LEAK_HAS:
            between = (born[-1] - born[0]) // (len(born) - 1)
            found.append(Growth(line, len(born), size_bytes * len(born), between))
    return sorted(found, key=lambda growth: -growth.size_bytes)
