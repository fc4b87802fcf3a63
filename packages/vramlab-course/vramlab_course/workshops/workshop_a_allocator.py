"""Workshop A: an allocator, against requests that were recorded while a model trained."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from vramlab.allocator import CachingAllocator, DeviceMemory
from vramlab.units import GIB, MIB, format_bytes
from vramlab_classroom.judge.lazy import torch
from vramlab_classroom.judge.task import Config, Exercise, NotFixed, Workshop
from vramlab_course.tasks.building import Building, Curves
from vramlab_course.tasks.gpus import GPU
from vramlab_course.tasks.repair import Run
from vramlab_course.tasks.results import whole

if TYPE_CHECKING:
    from vramlab_course.plots.lanes import Span

T4 = GPU("T4")
WIDTH = 256
ALIGNED_TO_BYTES = 512
CALLS = 1.5
"""So many times the driver calls of our own lean allocator are the target."""

ROOM = 1.02
"""And so many times what it reserves."""


@dataclass(frozen=True)
class RecordedRequest:
    """A block that is asked for, or given back."""

    block: int
    """Its number, by which it is given back."""

    size_bytes: int
    """Nothing, if it is given back."""


@cache
def recorded_requests(rows: tuple[int, ...], layers: int) -> tuple[RecordedRequest, ...]:
    """Record what a training asks PyTorch's allocator for.

    Args:
        rows: of the batch in each step; none for requests at the borders of the rules.
        layers: feed-forward layers of a residual network, with AdamW.
    """
    if not rows:
        return _at_borders()
    from vramlab_course.tasks.gpus import device

    requests: list[RecordedRequest] = []
    numbers: dict[int, int] = {}

    def heard(event: Any) -> None:
        if event.action == "alloc":
            numbers[event.address] = len(requests)
            requests.append(RecordedRequest(len(requests), event.size_bytes))
        elif event.action == "free_requested" and event.address in numbers:
            requests.append(RecordedRequest(numbers.pop(event.address), 0))

    with T4.attached():
        device().allocator.add_trace_tracker(heard)
        _train(rows, layers)
    return tuple(requests)


def _at_borders() -> tuple[RecordedRequest, ...]:
    """Ask for sizes at which one rule of PyTorch's allocator ends and another begins."""
    requests: list[RecordedRequest] = []

    def ask(*sizes_bytes: int) -> list[int]:
        first = len(requests)
        requests.extend(
            RecordedRequest(number, size_bytes)
            for number, size_bytes in enumerate(sizes_bytes, first)
        )
        return [*range(first, len(requests))]

    def give_back(*blocks: int) -> None:
        requests.extend(RecordedRequest(block, 0) for block in blocks)

    # Two holes of 4 MiB: the lower one is taken, so those behind it become one of 12.
    _, low, between, high, behind = ask(*[4 * MIB] * 5)
    give_back(low, high)
    ask(4 * MIB)
    give_back(between, behind)
    ask(12 * MIB)
    ask(10 * MIB)  # no hole is as large: a segment of 10 MiB, not of 20
    ask(MIB, MIB - 512, 512)  # what is left of a small segment: 512 bytes
    return tuple(requests)


def _train(rows: Sequence[int], layers: int) -> None:
    norms = [torch.nn.LayerNorm(WIDTH, device="cuda") for _ in range(layers)]
    ups = [torch.nn.Linear(WIDTH, 4 * WIDTH, device="cuda") for _ in range(layers)]
    downs = [torch.nn.Linear(4 * WIDTH, WIDTH, device="cuda") for _ in range(layers)]
    parameters = [p for each in (*norms, *ups, *downs) for p in each.parameters()]
    optimizer = torch.optim.AdamW(parameters)
    for count in rows:
        x = torch.zeros(count, WIDTH, device="cuda")
        for norm, up, down in zip(norms, ups, downs, strict=True):
            x = x + down(torch.nn.functional.gelu(up(norm(x))))
        x.square().mean().backward()
        del x
        optimizer.step()
        optimizer.zero_grad()


class Driver:
    """The driver of a GPU, as an allocator sees it. Its calls are counted."""

    def __init__(self) -> None:
        self.segments: dict[int, int] = {}
        """Bytes of each segment, by its address."""

        self.calls = 0
        self.taken: list[tuple[int, int]] = []
        """All that ever were taken: address and bytes."""

        self._next = 1 << 32

    def take(self, size_bytes: int) -> int:
        """Give a new segment: its address.

        Raises:
            NotFixed: the size is no number of bytes that a driver would give.
        """
        size_bytes = whole(asked := size_bytes) or 0
        if not 0 < size_bytes <= 16 * GIB:
            raise NotFixed(
                f"driver.take({asked!r}): the size of a segment is a whole number of bytes, from "
                f"1 to {16 * GIB}."
            )
        address = self._next
        # Segments never touch each other: blocks of two are no neighbours.
        self._next += -(-size_bytes // (2 * MIB)) * 2 * MIB + 2 * MIB
        self.segments[address] = size_bytes
        self.taken.append((address, size_bytes))
        self.calls += 1
        return address

    def give_back(self, address: int) -> None:
        """Take a segment back.

        Raises:
            NotFixed: there is none at the address.
        """
        address = whole(given := address) or 0
        if address not in self.segments:
            raise NotFixed(f"driver.give_back({given!r}): no segment starts at this address.")
        del self.segments[address]
        self.calls += 1


@dataclass
class HandedOut:
    """A block that an allocator has handed out."""

    address: int
    size_bytes: int
    born: int
    """Number of the request."""

    freed: int | None = None


@dataclass
class Replayed:
    """What an allocator has made of all requests."""

    driver: Driver = field(default_factory=Driver)
    blocks: list[HandedOut] = field(default_factory=list)
    reserved_bytes: list[int] = field(default_factory=list)
    """After each request."""

    asked_bytes: list[int] = field(default_factory=list)
    """What is asked for and not given back, after each request."""

    segments: dict[int, tuple[int, int, int | None]] = field(default_factory=dict)
    """By address: bytes, and the requests in which it was taken and given back."""

    @property
    def peak_bytes(self) -> int:
        """The most that was reserved after any request."""
        return max(self.reserved_bytes)


def _replay(run: Run) -> Replayed:
    """Ask an allocator for everything in turn, and look at each address that it gives."""
    replayed = Replayed()
    driver = replayed.driver
    # What else the driver knows is not for who asks it.
    allocator = run.program(SimpleNamespace(take=driver.take, give_back=driver.give_back))
    living: dict[int, HandedOut] = {}
    places: list[tuple[int, int]] = []  # address and bytes, sorted
    asked_bytes = 0
    for number, request in enumerate(run.inputs[0]):
        if request.size_bytes:
            given = allocator.malloc(request.size_bytes)
            address = _required_free(number, request.size_bytes, given, driver, places)
            insort(places, (address, request.size_bytes))
            block = HandedOut(address, request.size_bytes, number)
            living[request.block] = block
            replayed.blocks.append(block)
            asked_bytes += request.size_bytes
        else:
            block = living.pop(request.block)
            block.freed = number
            places.remove((block.address, block.size_bytes))
            allocator.free(block.address)
            asked_bytes -= block.size_bytes
        _note_segments(number, replayed)
        _require_segments(number, driver, places)
        replayed.reserved_bytes.append(sum(driver.segments.values()))
        replayed.asked_bytes.append(asked_bytes)
    return replayed


def _note_segments(number: int, replayed: Replayed) -> None:
    driver = replayed.driver
    for address, size_bytes in driver.taken[len(replayed.segments) :]:
        replayed.segments[address] = (size_bytes, number, None)
    for address, (size_bytes, taken, given_back) in replayed.segments.items():
        if given_back is None and address not in driver.segments:
            replayed.segments[address] = (size_bytes, taken, number)


def _segment_of(address: int, driver: Driver) -> tuple[int, int] | None:
    """Find the segment around an address: where it begins and ends."""
    before = [start for start in driver.segments if start <= address]
    start = max(before, default=None)
    return None if start is None else (start, start + driver.segments[start])


def _required_free(
    number: int, size_bytes: int, given: object, driver: Driver, places: list[tuple[int, int]]
) -> int:
    """Require that a block lies in a segment, aligned, and on no other block: its address."""
    what = f"Request {number}, malloc({size_bytes:,}),"
    if (address := whole(given)) is None:
        raise NotFixed(f"{what} returns a {type(given).__name__}; it has to return an address.")
    segment = _segment_of(address, driver)
    if segment is None or address + size_bytes > segment[1]:
        raise NotFixed(f"{what} returns a block that is not inside one segment of the driver.")
    if (address - segment[0]) % ALIGNED_TO_BYTES:
        raise NotFixed(
            f"{what} returns an address {address - segment[0]:,} bytes into its segment. It has "
            f"to be a multiple of {ALIGNED_TO_BYTES}."
        )
    index = bisect_right(places, (address, 0))
    neighbours = places[max(index - 1, 0) : index + 1]
    for other, other_bytes in neighbours:
        if address < other + other_bytes and other < address + size_bytes:
            raise NotFixed(
                f"{what} returns a block that overlaps another block of {other_bytes:,} bytes, "
                "which is still allocated."
            )
    return address


def _require_segments(number: int, driver: Driver, places: list[tuple[int, int]]) -> None:
    """Require that no segment was given back in which a block lives."""
    if len(driver.segments) == len(driver.taken):
        return
    for address, size_bytes in places:
        segment = _segment_of(address, driver)
        if segment is None or address + size_bytes > segment[1]:
            raise NotFixed(
                f"In request {number} it returned a segment to the driver that still contains an "
                f"allocated block of {size_bytes:,} bytes."
            )


class _PyTorchs:
    """PyTorch's own, on the learner's driver."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._allocator = CachingAllocator(DeviceMemory(16 * GIB))
        self._blocks: dict[int, Any] = {}
        self._segments: dict[int, int] = {}

    def malloc(self, size_bytes: int) -> int:
        block = self._allocator.malloc(size_bytes)
        segment = block.segment
        if segment.address not in self._segments:
            self._segments[segment.address] = self._driver.take(segment.size_bytes)
        address = self._segments[segment.address] + block.address - segment.address
        self._blocks[address] = block
        return address

    def free(self, address: int) -> None:
        self._allocator.free(self._blocks.pop(address))


class _Lean:
    """One list of free blocks for all sizes; what is empty goes back before more is taken."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._free: dict[int, int] = {}
        self._living: dict[int, int] = {}
        self._segments: dict[int, int] = {}

    def malloc(self, size_bytes: int) -> int:
        size_bytes = -(-size_bytes // ALIGNED_TO_BYTES) * ALIGNED_TO_BYTES
        fitting = [(each, address) for address, each in self._free.items() if each >= size_bytes]
        if not fitting:
            for address, each in list(self._segments.items()):
                if self._free.get(address) == each:
                    self._driver.give_back(address)
                    del self._free[address], self._segments[address]
            taken_bytes = max(size_bytes, 8 * MIB)
            address = self._driver.take(taken_bytes)
            self._segments[address] = taken_bytes
            fitting = [(taken_bytes, address)]
        found_bytes, address = min(fitting)
        self._free.pop(address, None)
        if found_bytes > size_bytes:
            self._free[address + size_bytes] = found_bytes - size_bytes
        self._living[address] = size_bytes
        return address

    def free(self, address: int) -> None:
        size_bytes = self._living.pop(address)
        after = self._free.pop(address + size_bytes, 0)
        size_bytes += after
        for other, other_bytes in self._free.items():
            if other + other_bytes == address:
                self._free[other] += size_bytes
                return
        self._free[address] = size_bytes


def _requests(run: Run, rows: Sequence[int], layers: int) -> tuple[Sequence[RecordedRequest]]:
    return (recorded_requests(tuple(rows), layers),)


def _as_pytorch(run: Run, expected: Replayed) -> None:
    if run.results.reserved_bytes != expected.reserved_bytes:
        raise NotFixed(_first_difference(run))


def _first_difference(run: Run) -> str:
    """Describe where an allocator first reserves something else than PyTorch's."""
    found, wanted = run.results.reserved_bytes, run.expected.reserved_bytes
    number = next((n for n, pair in enumerate(zip(found, wanted, strict=True)) if len({*pair}) > 1))
    mine, theirs = (each[number] - (each[number - 1] if number else 0) for each in (found, wanted))
    request = recorded_requests(tuple(run.case["rows"]), run.case["layers"])[number]
    where = f"In request {number} of {len(found)}"
    if not request.size_bytes:
        return f"{where}, free(), it changes the reserved memory. PyTorch keeps its segments."
    size = f"a block of {request.size_bytes:,} bytes"
    if mine and theirs:
        return (
            f"{where}, for {size}, it takes {mine:,} bytes from the driver; PyTorch takes "
            f"{theirs:,}."
        )
    if theirs:
        return (
            f"{where}, it finds a free block for {size}; PyTorch finds none and takes a new "
            "segment. Are small blocks (up to 1 MiB) and large ones kept in separate pools, and "
            "how large is the remainder of a split?"
        )
    return (
        f"{where}, it takes a new segment for {size}; PyTorch has a free block for it. Are "
        "neighbouring free blocks merged, is the smallest block that is large enough chosen, and "
        "how large is the remainder of a split?"
    )


def _is_full_of_holes(run: Run) -> str:
    """Describe what is reserved at the peak and not asked for."""
    replayed: Replayed = run.results
    number = replayed.reserved_bytes.index(replayed.peak_bytes)
    asked_bytes = replayed.asked_bytes[number]
    segments = sum(
        taken <= number and (given_back is None or number < given_back)
        for _, taken, given_back in replayed.segments.values()
    )
    reserved_bytes = replayed.peak_bytes
    return (
        f"{segments} segments have {format_bytes(reserved_bytes)}, of which "
        f"{format_bytes(asked_bytes)} are asked for and "
        f"{format_bytes(reserved_bytes - asked_bytes)} are not (request {number})"
    )


def _too_much(run: Run) -> str:
    return (
        f"It reserves {format_bytes(run.peak_bytes)} at its peak; the target is "
        f"{format_bytes(run.limit_bytes)}. At the peak, {_is_full_of_holes(run)}."
    )


def _map_of_blocks(run: Run) -> list[Span]:
    """Draw segments as rows, and blocks where they lie in them."""
    from vramlab_course.plots.lanes import Span

    replayed: Replayed = run.results
    end = len(replayed.reserved_bytes)
    names = {
        address: f"{number}: {format_bytes(size_bytes)}"
        for number, (address, (size_bytes, *_)) in enumerate(replayed.segments.items())
    }
    bars = [
        Span(names[address], "free in a segment", "", taken, end if back is None else back)
        for address, (_, taken, back) in replayed.segments.items()
    ]
    for block in replayed.blocks:
        address = max(each for each in replayed.segments if each <= block.address)
        size_bytes = replayed.segments[address][0]
        low = (block.address - address) / size_bytes
        high = low + block.size_bytes / size_bytes
        freed = end if block.freed is None else block.freed
        bars.append(Span(names[address], "block", "", block.born, freed, low, high))
    return bars


def _reserved(run: Run) -> Curves:
    return {
        "reserved": list(enumerate(run.results.reserved_bytes)),
        "asked for": list(enumerate(run.results.asked_bytes)),
    }


def _driver_calls(run: Run) -> int:
    return int(run.results.driver.calls)


def _hidden(random: Random) -> list[Config]:
    return [
        {"rows": [random.randrange(1000, 5000) for _ in range(3)], "layers": random.randrange(2, 4)}
        for _ in range(2)
    ]


def _replaying(**how: Any) -> Building:
    """Return a trial in which an allocator serves the recorded requests."""
    return Building(
        gpu=T4,
        build=_requests,
        call=_replay,
        peak=lambda run: run.results.peak_bytes,
        steps=_driver_calls,
        steps_name="driver calls",
        time="one step to the right: a block is allocated or freed",
        held="reserved",
        bars=_map_of_blocks,
        curves=_reserved,
        largest=_is_full_of_holes,
        **how,
    )


VISIBLE: tuple[Config, ...] = (
    {"rows": [3000, 1500, 3500], "layers": 3},
    {"rows": [2500, 4000, 2000], "layers": 2},
)

CACHING = Workshop(
    name="CachingAllocator",
    points=6,
    minutes=60,
    visible=VISIBLE,
    hidden=lambda random: [*_hidden(random), {"rows": [], "layers": 0}],
    steps="driver calls",
    is_plain=True,
    without=("torch",),
    trial=_replaying(
        reference=_PyTorchs,
        own_name="PyTorch",
        limit=lambda own: own.results.peak_bytes,
        ran_out=_first_difference,
        most_steps=_driver_calls,
        compare=_as_pytorch,
    ),
)

LEAN = Workshop(
    name="LeanAllocator",
    points=4,
    minutes=40,
    visible=VISIBLE,
    hidden=_hidden,
    steps="driver calls",
    is_plain=True,
    without=("torch",),
    trial=_replaying(
        fits=_Lean,
        pytorch=_PyTorchs,
        limit=lambda own: int(ROOM * own.results.peak_bytes),
        ran_out=_too_much,
        most_steps=lambda own: int(CALLS * _driver_calls(own)),
    ),
)

EXERCISE = Exercise(name="workshop_a_allocator", module=__name__, tasks=(CACHING, LEAN))
