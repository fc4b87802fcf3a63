"""Requests and frees, to be served again by another allocator.

requests = Requests()
number = requests.allocate(3 * MIB, stream=0)
requests.free(number)
requests.play(CachingAllocator(DeviceMemory(GIB), settings))    # whether all were served
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping

from vramlab.allocator.blocks import Block
from vramlab.allocator.caching import CachingAllocator
from vramlab.allocator.device_memory import PAGE_BYTES
from vramlab.allocator.statistics import DEFAULT_POOL_ID, PoolId
from vramlab.cuda_rules.rounding import round_up
from vramlab.errors import OutOfDeviceMemory

SETTINGS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:128",
    "max_split_size_mb:512",
)
"""Allocator settings worth trying, as PYTORCH_CUDA_ALLOC_CONF takes them; '' is the default."""


_EMPTY_CACHE = -(1 << 63)
"""Stands in the order of requests and frees where the cache is emptied."""


class Requests:
    """A program's requests and frees, in their order.

    Attributes:
        count: how many requests there are.
        failed_bytes: the last request, if it could not be served; None: all could.
        failed_stream: the stream of that request.
    """

    def __init__(self) -> None:
        self.count = 0
        self.failed_bytes: int | None = None
        self.failed_stream = 0
        self._sizes, self._streams = array("Q"), array("Q")
        # A request's number, -1 minus the number of what is freed, or `_EMPTY_CACHE`.
        self._order = array("q")
        self._pools: dict[int, PoolId] = {}  # of requests for a private pool

    def allocate(self, size_bytes: int, stream: int, pool_id: PoolId = DEFAULT_POOL_ID) -> int:
        """Add a request; return its number.

        Args:
            size_bytes: what is requested.
            stream: for which stream.
            pool_id: of a CUDA graph or a memory pool; the default pool's is (0, 0).
        """
        if pool_id != DEFAULT_POOL_ID:
            self._pools[self.count] = pool_id
        self._order.append(self.count)
        self._sizes.append(size_bytes)
        self._streams.append(stream)
        self.count += 1
        return self.count - 1

    def free(self, number: int) -> None:
        """Add the release of what a request was given."""
        self._order.append(-1 - number)

    def fail(self, size_bytes: int, stream: int) -> None:
        """Add the request that could not be served."""
        self.failed_bytes, self.failed_stream = size_bytes, stream

    def empty_cache(self) -> None:
        """Add a call of torch.cuda.empty_cache()."""
        self._order.append(_EMPTY_CACHE)

    def play(
        self,
        allocator: CachingAllocator,
        after: Callable[[int], None] | None = None,
        held: Mapping[int, Block] | None = None,
    ) -> bool:
        """Repeat everything with an allocator; return whether it could serve all requests.

        Args:
            allocator: of any settings and size.
            after: called after each request and each free with its number in their order.
            held: what the allocator has for some of the requests already, by their numbers.
        """
        blocks: dict[int, Block] = dict(held or {})
        try:
            for place, number in enumerate(self._order):
                if number == _EMPTY_CACHE:
                    allocator.empty_cache()
                elif number < 0:
                    allocator.free(blocks.pop(-1 - number))
                elif held is None or number not in held:
                    blocks[number] = self._serve(number, allocator)
                if after is not None:
                    after(place)
            if self.failed_bytes is not None:
                allocator.malloc(self.failed_bytes, self.failed_stream)
                if after is not None:
                    after(len(self._order))
        except OutOfDeviceMemory:
            return False
        return True

    def bytes_at(self, place: int) -> int:
        """Return what a request asks for; `place` is its number in the order of everything."""
        if place == len(self._order):
            return self.failed_bytes or 0
        number = self._order[place]
        if number == _EMPTY_CACHE:
            return 0
        return self._sizes[number if number >= 0 else -1 - number]

    def _serve(self, number: int, allocator: CachingAllocator) -> Block:
        pool_id = self._pools.get(number)
        if pool_id is None:
            return allocator.malloc(self._sizes[number], self._streams[number])
        allocator.begin_allocate_to_pool(pool_id, lambda stream: True)
        try:
            return allocator.malloc(self._sizes[number], self._streams[number])
        finally:
            allocator.end_allocate_to_pool(pool_id)


def least_memory(suffices: Callable[[int], bool], enough_bytes: int, above_bytes: int = 0) -> int:
    """Search the least memory that suffices, to 2 MiB, by bisection.

    Args:
        suffices: returns whether so many bytes do.
        enough_bytes: memory that is known to suffice.
        above_bytes: memory that is known not to.
    """
    low, high = above_bytes // PAGE_BYTES, round_up(enough_bytes, PAGE_BYTES) // PAGE_BYTES
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle * PAGE_BYTES) else (middle, high)
    return high * PAGE_BYTES
