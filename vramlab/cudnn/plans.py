"""Which of cuDNN's plans computes a convolution, and what PyTorch allocates until it knows.

PyTorch executes the first plan whose workspace it gets. With `torch.backends.cudnn.benchmark` it
first allocates the largest workspace, to time all plans in it, and then takes the fastest. No time
passes on a virtual GPU, so the first one stays the first, as on the native engine. The chosen plan
is remembered by thread: autograd's thread does not know what the program's thread has chosen.

Imports no torch. Source: `run_single_conv`, `get_plans_from_find` and `BenchmarkCache` in
aten/src/ATen/native/cudnn/Conv_v8.cpp, PyTorch 2.13.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from vramlab.cudnn.problems import Convolution
from vramlab.errors import OutOfDeviceMemory

_CACHE_LIMIT = "TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT"
_DEFAULT_CACHE_LIMIT = 10_000
_MOST_TIMED = 10_000
"""What a benchmark limit of 0 means."""

_WORKSPACE = "cuDNN's workspace"
_TRIAL = "cuDNN's workspace for torch.backends.cudnn.benchmark"


class Memory(Protocol):
    """One GPU's memory, as PyTorch uses it while it looks for a plan."""

    def take(self, size_bytes: int, what: str) -> Any:
        """Allocate a workspace; raises OutOfDeviceMemory where it does not fit."""

    def give(self, handle: Any) -> None:
        """Free what `take` returned."""

    def largest_bytes(self) -> int:
        """Return the largest size that can be allocated, as the allocator's `cacheInfo` does."""

    def empty_cache(self) -> None:
        """Return unused segments of all GPUs to the driver."""


@dataclass
class BenchmarkSettings:
    """What a program sets for `torch.backends.cudnn.benchmark`, for all GPUs.

    Attributes:
        limit: how many plans are timed; 0: all (`torch.backends.cudnn.benchmark_limit`).
        empties_cache: whether the cache is emptied after plans were timed
            (`torch._C._cudnn_set_conv_benchmark_empty_cache`).
    """

    limit: int = 10
    empties_cache: bool = True


class Plans:
    """The plans that threads have chosen on one GPU.

    Args:
        settings: of benchmarks; read at each of them.
        environment: for TORCH_CUDNN_V8_API_LRU_CACHE_LIMIT.
    """

    def __init__(self, settings: BenchmarkSettings, environment: Mapping[str, str]) -> None:
        self._settings = settings
        self._environment = environment
        self._chosen: defaultdict[object, dict[Convolution, int]] = defaultdict(dict)

    def execute(
        self,
        convolution: Convolution,
        sizes_bytes: Sequence[int],
        memory: Memory,
        *,
        thread: object,
        benchmark: bool,
    ) -> None:
        """Allocate and free what PyTorch does for one convolution.

        Args:
            convolution: what is computed.
            sizes_bytes: the workspaces of cuDNN's plans, best plan first.
            memory: of the GPU.
            thread: who computes; each thread has its own cache of plans.
            benchmark: `torch.backends.cudnn.benchmark`.

        Raises:
            RuntimeError: no plan fits, in PyTorch's words.
        """
        chosen = self._chosen[thread].pop(convolution, None)
        if chosen is not None:
            self._remember(thread, convolution, chosen)
            if _fits(memory, chosen):
                return
        if benchmark:
            sizes_bytes = self._time(sizes_bytes, memory)
        for size_bytes in sizes_bytes:
            if _fits(memory, size_bytes):
                self._remember(thread, convolution, size_bytes)
                return
        how = "FIND" if benchmark else "GET"
        raise RuntimeError(f"{how} was unable to find an engine to execute this computation")

    def forget(self, thread: object) -> None:
        """Drop the plans of a thread that has ended."""
        self._chosen.pop(thread, None)

    def _time(self, sizes_bytes: Sequence[int], memory: Memory) -> list[int]:
        """Allocate the largest workspace, half of it where that fails; return what was timed."""
        largest_bytes = memory.largest_bytes()
        sizes = [size_bytes for size_bytes in sizes_bytes if size_bytes <= largest_bytes]
        wanted_bytes = trial_bytes = max(sizes, default=0)
        while trial_bytes and not _fits(memory, trial_bytes, _TRIAL):
            trial_bytes //= 2
        if trial_bytes < wanted_bytes:
            sizes = [size_bytes for size_bytes in sizes if size_bytes <= trial_bytes]
        if self._settings.empties_cache:
            memory.empty_cache()
        return sizes[: self._settings.limit or _MOST_TIMED]

    def _remember(self, thread: object, convolution: Convolution, size_bytes: int) -> None:
        """Note a plan; the one unused for longest goes where there are too many."""
        limit = self._cache_limit()
        if limit < 0:
            return
        plans = self._chosen[thread]
        if limit and len(plans) >= limit:
            del plans[next(iter(plans))]
        plans[convolution] = size_bytes

    def _cache_limit(self) -> int:
        try:
            return int(self._environment.get(_CACHE_LIMIT, _DEFAULT_CACHE_LIMIT))
        except ValueError:
            return _DEFAULT_CACHE_LIMIT


def _fits(memory: Memory, size_bytes: int, what: str = _WORKSPACE) -> bool:
    """Allocate a workspace and free it again; PyTorch goes on without it if memory runs out."""
    if size_bytes:
        try:
            handle = memory.take(size_bytes, what)
        except OutOfDeviceMemory:
            return False
        memory.give(handle)
    return True
