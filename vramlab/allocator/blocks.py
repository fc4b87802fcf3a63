"""Blocks, the segments they tile, and the pools that cache the free ones.

A segment is what the driver gave; its blocks form a chain in address order. A pool keeps its free
blocks per stream, sorted by size, then by age, then by address, so that the best fit is one binary
search. Whose age counts, `Precedence` says.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from enum import Enum
from typing import Any

from vramlab.allocator.statistics import DEFAULT_POOL_ID, PoolId, Statistics, Tally


class Precedence(Enum):
    """Which of several free blocks of one size comes first.

    Source: c10/cuda/CUDACachingAllocator.cpp. Up to PyTorch 2.11 `BlockComparatorSize` compares
    addresses (2.11's `Block` has a `registration_counter`, of each thread, for NCCL alone). 2.12
    compares that counter, which each new block counts up, for all threads: backward passes do not
    count apart (pull request 178362 of PyTorch). In 2.13 only a new segment counts, all its blocks
    have its number, and addresses decide among those (pull request 183591). Random programs and
    several threads take the same blocks on the native engine (tests/vramlab/native/test_torch.py).
    """

    LOWEST_ADDRESS = "the one at the lowest address"
    OLDEST_BLOCK = "the one that was made first; what is left of a block is still the same one"
    OLDEST_SEGMENT = "the one in the segment that was made first, there at the lowest address"


def precedence_of(torch_version: tuple[int, int]) -> Precedence:
    """Return which of several free blocks of one size a PyTorch takes.

    Args:
        torch_version: (major, minor).
    """
    if torch_version < (2, 12):
        return Precedence.LOWEST_ADDRESS
    return Precedence.OLDEST_BLOCK if torch_version < (2, 13) else Precedence.OLDEST_SEGMENT


class Block:
    """A piece of a segment: in use, waiting for a stream, free, or (expandable segments) unmapped.

    Attributes:
        address: where it starts.
        size_bytes: how long it is. Never changes while the block is in use.
        rank: its age, or its segment's, where that decides among blocks of one size.
        requested_bytes: what the program asked for when it last got this block.
        segment: the segment it is a piece of.
        previous, next: its neighbours in the segment.
        allocated: the program holds it.
        free: it is in the pool's cache. Neither allocated nor free: a stream still uses it.
        mapped: there is memory behind its addresses.
        stream_uses: the other streams that the program says use it, if any, and of each whether
            it said so while a CUDA graph was captured.
        age_base: the pool's search count when it was last cached (garbage collection's clock).
        context: whatever the caller gave with the allocation.
        segment_context: whatever the caller gave with the allocation that made the segment.
    """

    __slots__ = (
        "address",
        "age_base",
        "allocated",
        "context",
        "free",
        "mapped",
        "next",
        "previous",
        "rank",
        "requested_bytes",
        "segment",
        "segment_context",
        "size_bytes",
        "stream_uses",
    )

    def __init__(self, address: int, size_bytes: int, segment: Segment) -> None:
        self.address = address
        self.size_bytes = size_bytes
        self.segment = segment
        self.rank = segment.pool.rank_in(segment)
        self.requested_bytes = 0
        self.previous: Block | None = None
        self.next: Block | None = None
        self.allocated = False
        self.free = False
        self.mapped = True
        self.stream_uses: dict[int, bool] | None = None
        self.age_base = 0
        self.context: Any = None
        self.segment_context: Any = None

    @property
    def stream(self) -> int:
        """The stream it was allocated on, and the only one that it will serve again."""
        return self.segment.stream

    @property
    def is_split(self) -> bool:
        """Return whether it shares its segment with other blocks."""
        return self.previous is not None or self.next is not None

    def put_between(self, before: Block | None, after: Block | None) -> None:
        """Join the chain between two blocks that were neighbours until now."""
        self.previous = before
        self.next = after
        if before is None:
            self.segment.first = self
        else:
            before.next = self
        if after is not None:
            after.previous = self

    def cut(self, address: int) -> Block:
        """Split off and return what lies from an address on. Both are out of the cache."""
        rest = Block(address, self.address + self.size_bytes - address, self.segment)
        rest.mapped = self.mapped
        rest.put_between(self, self.next)
        self.size_bytes = address - self.address
        return rest

    def __repr__(self) -> str:
        state = "allocated" if self.allocated else "free" if self.free else "awaiting free"
        return f"<Block {self.address:#x} {self.size_bytes} bytes, {state}, stream {self.stream}>"


class Segment:
    """A range of addresses that the driver gave: by cudaMalloc, or reserved to be mapped later.

    Attributes:
        pool: the pool whose blocks it holds.
        stream: the stream whose blocks it holds.
        address, size_bytes: the range (of an expandable segment: all that is reserved).
        rank: how many the pool had made before, where that decides among blocks of one size.
        first: the first block of its chain.
        expandable: pages are mapped and unmapped one by one.
    """

    __slots__ = ("address", "expandable", "first", "pool", "rank", "size_bytes", "stream")

    expandable: bool

    def __init__(self, pool: BlockPool, stream: int, address: int, size_bytes: int) -> None:
        self.pool = pool
        self.stream = stream
        self.address = address
        self.size_bytes = size_bytes
        self.rank = pool.rank_of_new_segment()
        self.expandable = False
        self.first = Block(address, size_bytes, self)

    def blocks(self) -> list[Block]:
        """Walk over its blocks, in address order."""
        chain: list[Block] = []
        block: Block | None = self.first
        while block is not None:
            chain.append(block)
            block = block.next
        return chain


CachedBlock = tuple[int, int, int, Block]
"""Its size, rank and address, and the block itself."""


class BlockPool:
    """The cache of one pool: small (blocks up to 1 MiB) or large.

    Attributes:
        is_small: which of the two.
        tally: the statistics of this pool.
        owner: the private pool that this is one half of; None for the default pool.
        id: the owner's id, `DEFAULT_POOL_ID` without one.
        cached: the free blocks of each stream as (size, rank, address, block), sorted.
        searches: how often a block was searched for, counted only while garbage collection is on.
    """

    __slots__ = (
        "_made",
        "_precedence",
        "_unmapped",
        "cached",
        "id",
        "is_small",
        "owner",
        "searches",
        "tally",
    )

    def __init__(
        self,
        is_small: bool,
        tally: Tally,
        precedence: Precedence,
        owner: PrivatePool | None = None,
    ) -> None:
        self.is_small = is_small
        self.tally = tally
        self.owner = owner
        self.id = DEFAULT_POOL_ID if owner is None else owner.id
        self.searches = 0
        self.cached: defaultdict[int, list[CachedBlock]] = defaultdict(list)
        self._precedence = precedence
        self._made = 0
        self._unmapped: defaultdict[int, list[tuple[int, Block]]] = defaultdict(list)

    def rank_of_new_segment(self) -> int:
        """Return the rank of a segment that is being made."""
        return self._next_rank() if self._precedence is Precedence.OLDEST_SEGMENT else 0

    def rank_in(self, segment: Segment) -> int:
        """Return the rank of a block that is being made in a segment."""
        return self._next_rank() if self._precedence is Precedence.OLDEST_BLOCK else segment.rank

    def _next_rank(self) -> int:
        self._made += 1
        return self._made

    def free_blocks(self) -> list[Block]:
        """Return all free blocks, by stream, then in the order in which they would be taken."""
        return [block for stream in sorted(self.cached) for *_, block in self.cached[stream]]

    def unmapped_blocks(self, stream: int) -> list[Block]:
        """Return the unmapped ranges of a stream's expandable segments, by address."""
        return [block for _, block in self._unmapped[stream]]

    def add(self, block: Block) -> None:
        """Cache an unused block."""
        block.free = True
        block.age_base = self.searches
        entry = block.size_bytes, block.rank, block.address, block
        insort(self.cached[block.segment.stream], entry)

    def remove(self, block: Block) -> None:
        """Take a block out of the cache, to be used or given back."""
        block.free = False
        blocks = self.cached[block.segment.stream]
        del blocks[bisect_left(blocks, (block.size_bytes, block.rank, block.address))]

    def add_unmapped(self, block: Block) -> None:
        block.free = True
        insort(self._unmapped[block.segment.stream], (block.address, block))

    def remove_unmapped(self, block: Block) -> None:
        block.free = False
        blocks = self._unmapped[block.segment.stream]
        del blocks[bisect_left(blocks, (block.address,))]

    def age(self, block: Block) -> int:
        """Count the searches that a cached block has sat through."""
        return self.searches - block.age_base

    def absorb(self, block: Block, neighbour: Block) -> int:
        """Merge a free neighbour into `block` (itself outside the cache); returns its size.

        Both must be mapped or both unmapped.
        """
        if neighbour.mapped:
            self.remove(neighbour)
        else:
            self.remove_unmapped(neighbour)
        if block.previous is neighbour:
            block.address = neighbour.address
            block.segment_context = neighbour.segment_context
            block.put_between(neighbour.previous, block.next)
        else:
            block.put_between(block.previous, neighbour.next)
        block.size_bytes += neighbour.size_bytes
        return neighbour.size_bytes

    def absorb_neighbours(self, block: Block) -> None:
        """Merge the free neighbours of `block` that are mapped, or unmapped, as it is."""
        for neighbour in (block.previous, block.next):
            if neighbour is not None and neighbour.free and neighbour.mapped == block.mapped:
                self.absorb(block, neighbour)


class PrivatePool:
    """Memory that only CUDA graphs, or a `torch.cuda.MemPool`, allocate from.

    Attributes:
        id: what PyTorch calls it: (n, 0) of a graph's own, (0, n) of one that a program made.
        small, large: its two halves.
        use_count: how many graphs and memory pools use it. At 0 its segments can be freed.
        device_allocs: how many segments (or growths of expandable ones) have not been freed.
        splits: whether a block is split for a smaller request.
    """

    __slots__ = ("device_allocs", "id", "large", "small", "splits", "use_count")

    def __init__(self, pool_id: PoolId, statistics: Statistics, precedence: Precedence) -> None:
        self.id = pool_id
        self.small = BlockPool(True, statistics.small_pool, precedence, self)
        self.large = BlockPool(False, statistics.large_pool, precedence, self)
        self.use_count = 1
        self.device_allocs = 0
        self.splits = True
