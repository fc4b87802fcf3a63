"""The private pools of one allocator: who uses them, and which allocations go there.

Source: `create_or_incref_pool`, `beginAllocateToPool`, `endAllocateToPool`, `releasePool` and
`get_pool` in c10/cuda/CUDACachingAllocator.cpp, PyTorch 2.13. Errors have PyTorch's words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vramlab.allocator.blocks import BlockPool, PrivatePool
from vramlab.allocator.statistics import PoolId

Accepts = Callable[[int], bool]
"""Called with the stream of an allocation; whether it goes to a private pool."""

_FIBONACCI = 11400714819323198485


def table_order(pool_ids: Iterable[PoolId]) -> list[PoolId]:
    """Order pools as PyTorch's hash table of them does, which walks along its slots.

    Source: `MempoolIdHash` in c10/core/CachingDeviceAllocator.h and `fibonacci_hash_policy` in
    c10/util/flat_hash_map.h, PyTorch 2.13.
    """
    return sorted(pool_ids, key=lambda pool_id: (pool_id[0] or pool_id[1]) * _FIBONACCI % 2**64)


class PrivatePools:
    """The private pools of one allocator.

    Attributes:
        pools: all that exist, by id.
        freeable: those that nothing uses any more; their cached segments can be freed.
        used_on_oom: pools whose cached blocks serve other requests before an out-of-memory error.
        routes: the pools that allocations go to now, the latest last.
    """

    def __init__(self, make: Callable[[PoolId], PrivatePool]) -> None:
        self.pools: dict[PoolId, PrivatePool] = {}
        self.freeable: dict[PoolId, PrivatePool] = {}
        self.used_on_oom: set[PoolId] = set()
        self._make = make
        self.routes: dict[PoolId, Accepts] = {}
        self._unsplit: set[PoolId] = set()

    def create_or_retain(self, pool_id: PoolId) -> None:
        """Make a pool, or count one user more of it."""
        pool = self.pools.get(pool_id)
        if pool is None:
            pool = self.pools[pool_id] = self._make(pool_id)
            pool.splits = pool_id not in self._unsplit
            return
        if pool.use_count <= 0:
            raise _asserted("it->second->use_count > 0")
        pool.use_count += 1

    def set_no_split(self, pool_id: PoolId) -> None:
        """Give every block of a pool out whole, from now on."""
        self._unsplit.add(pool_id)
        if (pool := self.pools.get(pool_id)) is not None:
            pool.splits = False

    def begin(self, pool_id: PoolId, accepts: Accepts) -> None:
        """Send allocations to a pool whose stream `accepts` says yes to. The latest pool is first.

        Raises: RuntimeError when they already go there. One user more is counted all the same.
        """
        self.create_or_retain(pool_id)
        if pool_id in self.routes:
            raise RuntimeError("beginAllocateToPool: already recording to mempool_id")
        self.routes[pool_id] = accepts

    def end(self, pool_id: PoolId) -> None:
        """Send no more allocations to a pool.

        Raises: RuntimeError when none go there.
        """
        if self.routes.pop(pool_id, None) is None:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    def release(self, pool_id: PoolId) -> None:
        """Count one user less of a pool; without users its segments can be freed."""
        pool = self.find(pool_id)
        pool.use_count -= 1
        if pool.use_count < 0:
            raise _asserted("uc >= 0")
        if pool.use_count == 0:
            self.freeable[pool_id] = pool

    def find(self, pool_id: PoolId) -> PrivatePool:
        """Return the pool with an id."""
        if (pool := self.pools.get(pool_id)) is None:
            raise _asserted("it != graph_pools.end()")
        return pool

    def forget(self, pool_id: PoolId) -> None:
        """Drop a pool that nothing uses and that has no memory."""
        del self.pools[pool_id]
        del self.freeable[pool_id]

    def pool_for(self, is_small: bool, stream: int) -> BlockPool | None:
        """Find where a request goes that a private pool receives; None: to the default pool."""
        for pool_id, accepts in reversed(self.routes.items()):
            if accepts(stream):
                pool = self.pools[pool_id]
                return pool.small if is_small else pool.large
        return None

    def block_pools(self) -> list[BlockPool]:
        """List the halves of all private pools."""
        return [half for pool in self.pools.values() for half in (pool.small, pool.large)]

    def free_bytes(self) -> int:
        """Sum up the cached blocks of all private pools."""
        return sum(block.size_bytes for half in self.block_pools() for block in half.free_blocks())


def _asserted(condition: str) -> RuntimeError:
    return RuntimeError(
        f'{condition} INTERNAL ASSERT FAILED at "c10/cuda/CUDACachingAllocator.cpp", please report '
        "a bug to PyTorch. A memory pool without users, or that does not exist, cannot be used"
    )
