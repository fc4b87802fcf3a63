"""Addresses of cudaMalloc: up to PyTorch 2.11, their order decides which of equal blocks is taken.

The driver takes addresses in chunks of a multiple of 32 MiB, from the top of the address space
down, and puts what is smaller than what is left of a chunk into the newest chunk that has room.
Read off 11 random sequences of cudaMalloc and cudaFree on an H200 (driver 580.159, Linux), 2,652
calls, of which this gives every address relative to the first. In a real process the host's own
mappings lie between the chunks: they shift addresses, and may turn the order of two segments.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from vramlab.cuda_rules.rounding import round_up
from vramlab.units import MIB

CHUNK_BYTES = 32 * MIB
"""Addresses are taken in multiples of it, at multiples of it."""

_CONTEXT_CHUNKS = ((74 * MIB, 24 * MIB), (0, 2 * MIB))
"""What CUDA's context leaves free in chunks of its own: where, counted from the lower one, and how
much; the older one first."""

_BELOW_CONTEXT_BYTES = 414 * MIB
"""From the end of the first chunk up to the context's lower free place."""


@dataclass
class _Chunk:
    """Addresses that were taken together, with the holes that are free again."""

    number: int
    start: int
    end: int
    of_context: bool = False
    holes: list[tuple[int, int]] = field(init=False)
    """From and to, by address: at first all of it."""

    def __post_init__(self) -> None:
        self.holes = [(self.start, self.end)]

    def largest_hole_bytes(self) -> int:
        return max((end - start for start, end in self.holes), default=0)

    def take(self, size_bytes: int) -> int:
        """Give the start of the smallest hole that is large enough; the lowest of several."""
        at = min(
            (end - start, index)
            for index, (start, end) in enumerate(self.holes)
            if end - start >= size_bytes
        )[1]
        start, end = self.holes[at]
        self.holes[at : at + 1] = [(start + size_bytes, end)] if start + size_bytes < end else []
        return start

    def give(self, start: int, end: int) -> None:
        _add_hole(self.holes, start, end)

    def is_free(self) -> bool:
        return self.holes == [(self.start, self.end)]


class AddressSpace:
    """Virtual addresses of one GPU, handed out as the driver does.

    Args:
        start: the lowest address, a multiple of `CHUNK_BYTES`.
        size_bytes: how many there are, a multiple of `CHUNK_BYTES`.
    """

    def __init__(self, start: int, size_bytes: int) -> None:
        top = start + size_bytes - CHUNK_BYTES * 16  # room for the context's own
        self._gaps = [(start, top)]  # outside of chunks, by address
        self._taken: dict[int, tuple[int, _Chunk]] = {}  # bytes and chunk, by first address
        self._numbers = 0
        self._roomy: dict[int, list[int]] = {}  # numbers of chunks by their largest hole's bytes
        self._chunks: dict[int, _Chunk] = {}  # those with room, by number
        for offset, room_bytes in _CONTEXT_CHUNKS:
            place = top + _BELOW_CONTEXT_BYTES + offset
            self._enter(self._new_chunk(place, room_bytes, of_context=True))

    def take(self, size_bytes: int) -> int | None:
        """Take `size_bytes` (a multiple of a page): an address, or None when addresses run out."""
        numbers = [each[-1] for bytes_, each in self._roomy.items() if bytes_ >= size_bytes]
        if numbers:
            chunk = self._chunks[max(numbers)]
            self._leave(chunk)
        else:
            chunk_bytes = round_up(size_bytes, CHUNK_BYTES)
            start = self._take_gap(chunk_bytes)
            if start is None:
                return None
            chunk = self._new_chunk(start, chunk_bytes)
        return self._take_from(chunk, size_bytes)

    def reserve(self, size_bytes: int) -> int | None:
        """Take addresses that share no chunk, as cuMemAddressReserve does; None if they run out."""
        size_bytes = round_up(size_bytes, CHUNK_BYTES)
        start = self._take_gap(size_bytes)
        if start is None:
            return None
        return self._take_from(self._new_chunk(start, size_bytes), size_bytes)

    def give_back(self, address: int) -> int:
        """Free what `take` or `reserve` returned, and return how many bytes it had."""
        if address not in self._taken:
            raise ValueError(f"{address:#x} is not the start of memory that was handed out")
        size_bytes, chunk = self._taken.pop(address)
        self._leave(chunk)
        chunk.give(address, address + size_bytes)
        if chunk.is_free() and not chunk.of_context:
            _add_hole(self._gaps, chunk.start, chunk.end)
        else:
            self._enter(chunk)
        return size_bytes

    def _take_from(self, chunk: _Chunk, size_bytes: int) -> int:
        """Take a part of a chunk that has room for it and is not listed."""
        address = chunk.take(size_bytes)
        self._enter(chunk)
        self._taken[address] = size_bytes, chunk
        return address

    def _take_gap(self, size_bytes: int) -> int | None:
        """Return the top of the highest larger gap: the driver maps more, and cuts it to size."""
        for index in range(len(self._gaps) - 1, -1, -1):
            start, end = self._gaps[index]
            if end - start > size_bytes:
                self._gaps[index] = (start, end - size_bytes)
                return end - size_bytes
        return None

    def _new_chunk(self, start: int, size_bytes: int, *, of_context: bool = False) -> _Chunk:
        self._numbers += 1
        return _Chunk(self._numbers, start, start + size_bytes, of_context)

    def _enter(self, chunk: _Chunk) -> None:
        """List a chunk under its largest hole, if it has one."""
        room_bytes = chunk.largest_hole_bytes()
        if room_bytes:
            insort(self._roomy.setdefault(room_bytes, []), chunk.number)
            self._chunks[chunk.number] = chunk

    def _leave(self, chunk: _Chunk) -> None:
        room_bytes = chunk.largest_hole_bytes()
        if room_bytes:
            numbers = self._roomy[room_bytes]
            del numbers[bisect_left(numbers, chunk.number)]
            if not numbers:
                del self._roomy[room_bytes]
            del self._chunks[chunk.number]


def _add_hole(holes: list[tuple[int, int]], start: int, end: int) -> None:
    """Add a hole to some that are in order, and join it with those it touches."""
    index = bisect_left(holes, (start,))
    after = index
    if after < len(holes) and holes[after][0] == end:
        end = holes[after][1]
        after += 1
    if index and holes[index - 1][1] == start:
        index -= 1
        start = holes[index][0]
    holes[index:after] = [(start, end)]
