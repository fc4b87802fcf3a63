"""A real GPU's snapshot beside that of the same script on a virtual GPU, request by request.

    for compared in compare(real, virtual):
        print(compared)

Two programs that allocate alike request the same sizes in the same order, and free each block
between the same two requests. What differs is listed by line.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from vramlab.explaining.categories import line_of
from vramlab.explaining.traces import GPUTrace, Life
from vramlab.recordings.alignment import Pair, align
from vramlab.table import Table

_BEGINNING = 40
"""Requests by which the beginning of a trace is looked for in the whole run."""
_LINES_SHOWN = 12


@dataclass(frozen=True)
class Compared:
    """One GPU of both.

    Attributes:
        device: its index.
        begins: how many requests of the virtual run come before the recorded trace begins.
        requests: of the recording.
        equal_requests: of these, those that the virtual run has in the same order.
        equal_frees: of these, those that both free at the same point.
        first: (number of the request, recorded line and size, virtual line and size) of the first
            difference; None: there is none.
        extra: (side, line, size) of requests that only one has, and how many.
        peaks: (name, recorded bytes, virtual bytes).
    """

    device: int
    begins: int
    requests: int
    equal_requests: int
    equal_frees: int
    first: tuple[int, str, str] | None
    extra: Counter[tuple[str, str, int]] = field(default_factory=Counter)
    peaks: tuple[tuple[str, int, int], ...] = ()

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return (
            self.equal_requests == self.equal_frees == self.requests
            and not self.extra
            and all(recorded == virtual for _, recorded, virtual in self.peaks)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what `vramlab compare --json` prints."""
        extra = [
            {"only": side, "line": line, "bytes": size_bytes, "requests": count}
            for (side, line, size_bytes), count in self.extra.items()
        ]
        return {**asdict(replace(self, extra=Counter())), "extra": extra, "equal": self.is_equal}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"cuda:{self.device}"
        if self.begins:
            yield f"  the trace begins after {self.begins:,} requests of the run"
        yield f"  requests equal in size and order: {self.equal_requests:,} of {self.requests:,}"
        yield f"  freed at the same point: {self.equal_frees:,} of {self.equal_requests:,}"
        for name, recorded, virtual in self.peaks:
            difference = virtual - recorded
            found = "equal" if not difference else f"{difference:+,} ({difference / recorded:+.2%})"
            yield f"  {name}: recorded {recorded:,}, virtual {virtual:,}: {found}"
        if self.first:
            number, recorded_request, virtual_request = self.first
            yield f"  first difference at request {number:,}:"
            yield f"    recorded {recorded_request}"
            yield f"    virtual  {virtual_request}"
        if self.extra:
            rows = tuple(
                (line, side, f"{size_bytes:,}", f"{count:,}")
                for (side, line, size_bytes), count in sorted(
                    self.extra.items(), key=lambda item: -item[0][2] * item[1]
                )[:_LINES_SHOWN]
            )
            header = ("line", "only", "bytes", "requests")
            yield f"{Table('Requests that only one has', header, rows)}"


def compare(real: Sequence[GPUTrace], virtual: Sequence[GPUTrace]) -> list[Compared]:
    """Compare the GPUs of two snapshots of one script.

    Args:
        real: of a real GPU; its traces may begin in the middle.
        virtual: of the whole run on a virtual GPU.
    """
    others = {gpu.device: gpu for gpu in virtual}
    return [_compared(gpu, others[gpu.device]) for gpu in real if gpu.device in others]


def _compared(real: GPUTrace, virtual: GPUTrace) -> Compared:
    ours = [life for life in real.lives if life.born >= 0]
    theirs = [life for life in virtual.lives if life.born >= 0]
    is_whole = not real.allocated_bytes[0]
    begins = 0 if is_whole else _beginning(_sizes(ours), _sizes(theirs))
    theirs = theirs[begins:]
    pairs = list(align(_sizes(ours), _sizes(theirs)))
    while pairs and pairs[-1][0] is None:
        pairs.pop()  # what the run did after the snapshot was written
    extra: Counter[tuple[str, str, int]] = Counter()
    for left, right in pairs:
        if right is None and left is not None:
            extra["recorded", line_of(ours[left].frames), ours[left].request_bytes] += 1
        elif left is None and right is not None:
            extra["virtual", line_of(theirs[right].frames), theirs[right].request_bytes] += 1
    return Compared(
        device=real.device,
        begins=begins,
        requests=len(ours),
        equal_requests=sum(None not in pair for pair in pairs),
        equal_frees=_equal_frees(ours, theirs, pairs),
        first=_first(ours, theirs, pairs),
        extra=extra,
        peaks=(
            ("peak allocated", max(real.allocated_bytes), max(virtual.allocated_bytes)),
            ("peak reserved", max(real.reserved_bytes), max(virtual.reserved_bytes)),
        ),
    )


def _sizes(lives: Sequence[Life]) -> list[int]:
    return [life.request_bytes for life in lives]


def _beginning(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Find where the whole run has the requests with which a trace begins."""
    for length in range(min(_BEGINNING, len(ours)), 0, -1):
        for start in range(len(theirs) - length + 1):
            if theirs[start] == ours[0] and theirs[start : start + length] == ours[:length]:
                return start
    return 0


def _first(
    ours: Sequence[Life], theirs: Sequence[Life], pairs: Sequence[Pair]
) -> tuple[int, str, str] | None:
    """Describe the first request that only one has, and what the other does there."""
    for number, pair in enumerate(pairs):
        if None in pair:
            rest = pairs[number:]
            left = next((ours[place] for place, _ in rest if place is not None), None)
            right = next((theirs[place] for _, place in rest if place is not None), None)
            return number, _request(left), _request(right)
    return None


def _request(life: Life | None) -> str:
    return f"{life.request_bytes:,} bytes: {line_of(life.frames)}" if life else "has ended"


def _equal_frees(ours: Sequence[Life], theirs: Sequence[Life], pairs: Sequence[Pair]) -> int:
    """Count the blocks that both free between the same two requests, or not at all."""
    last = max((right for _, right in pairs if right is not None), default=-1)
    both = {right: left for left, right in pairs if left is not None and right is not None}
    places = _freed_after(ours, len(ours)), _freed_after(theirs, last + 1)
    return sum(
        places[0][left] == (both.get(place) if place is not None else None)
        for right, left in both.items()
        for place in (places[1][right],)
    )


def _freed_after(lives: Sequence[Life], count: int) -> list[int | None]:
    """Give the last request before each block is freed; None: it is not freed until the end."""
    born = [life.born for life in lives[:count]]
    places = [
        None if life.freed is None else bisect_left(born, life.freed) - 1 for life in lives[:count]
    ]
    return [None if place == count - 1 else place for place in places]
