"""PYTORCH_CUDA_ALLOC_CONF: what can be set, and what each setting accepts.

Source: `AcceleratorAllocatorConfig::parseArgs` in c10/core/AllocatorConfig.cpp and
`CUDAAllocatorConfig::parseArgs` in c10/cuda/CUDAAllocatorConfig.cpp, PyTorch 2.13 and 2.15. PyTorch
reads some malformed texts as something else (`30.7` as 30, `-1` as no limit); here they are errors.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from vramlab.cuda_rules.sizes import LARGE_SEGMENT_BYTES, OWN_SEGMENT_FROM_BYTES, ROUNDUP_INTERVALS
from vramlab.errors import AllocatorConfigError
from vramlab.units import GIB, MIB

ENVIRONMENT_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
"""Where PyTorch looks, in this order; the first that is set holds, also where it is empty.

Source: `AcceleratorAllocatorConfig::instance` in c10/core/AllocatorConfig.cpp, PyTorch 2.13."""

MAX_REGISTER_THREADS = 128
"""`pinned_max_register_threads` in c10/cuda/CUDAAllocatorConfig.h."""

_ITEM = re.compile(r"(?P<key>[^,:\[\]]+):(?P<value>\[[^\[\]]*\]|[^,:\[\]]+)(?:,|$)")


@dataclass(frozen=True)
class AllocatorSettings:
    """Every option of PyTorch 2.15, with PyTorch's defaults.

    Attributes:
        text: what was parsed last.
        max_split_size_bytes: blocks of this size or larger are never split; None: no limit.
        max_non_split_rounding_bytes: how much larger than the request such a block may be.
        large_segment_bytes: segment of the large pool for blocks below 10 MiB, and its page when
            segments are expandable.
        garbage_collection_threshold: share of the allowed memory above which cached blocks are
            given back by age; 0: off. Works only together with a memory fraction below 1.
        roundup_power2_divisions: for requests from 1 MiB, 2 MiB, ... 32 GiB, into how many steps
            the way to the next power of two is divided; 0 and 1: no such rounding.
        expandable_segments: grow few segments page by page instead of making many.
        expandable_segments_reserve: addresses of an expandable segment, in bytes or as a fraction
            of the GPU's memory; None: an eighth more than the GPU has. A larger request fails.
        expandable_segments_reserve_by_class: the same for streams that C++ code has tagged; no
            effect on others.
        per_process_memory_fraction: share of the GPU that may be reserved. It counts when an
            allocator is made; afterwards `CachingAllocator.memory_fraction` does.
        throw_on_cudamalloc_oom: refuse at once what is over that share, and keep the cache.
        backend: native, or cudaMallocAsync (which is not modelled).
        release_lock_on_cudamalloc: no effect on memory.
        graph_capture_record_stream_reuse: no effect outside the capture of CUDA graphs, which a
            virtual GPU refuses with it.
        pinned_use_cuda_host_register, pinned_num_register_threads, pinned_use_background_threads,
        pinned_reserve_segment_bytes, pinned_free_catch_all, pinned_max_round_threshold_bytes,
        pinned_max_cached_size_bytes: about the host's memory; no effect on the GPU's.
    """

    text: str = ""
    max_split_size_bytes: int | None = None
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    garbage_collection_threshold: float = 0.0
    roundup_power2_divisions: tuple[int, ...] = (0,) * ROUNDUP_INTERVALS
    expandable_segments: bool = False
    expandable_segments_reserve: int | float | None = None
    expandable_segments_reserve_by_class: str = ""
    per_process_memory_fraction: float = 1.0
    throw_on_cudamalloc_oom: bool = False
    backend: str = "native"
    release_lock_on_cudamalloc: bool = False
    graph_capture_record_stream_reuse: bool = False
    pinned_use_cuda_host_register: bool = False
    pinned_num_register_threads: int = 1
    pinned_use_background_threads: bool = False
    pinned_reserve_segment_bytes: int = 0
    pinned_free_catch_all: bool = False
    pinned_max_round_threshold_bytes: int | None = None
    pinned_max_cached_size_bytes: int | None = None

    @classmethod
    def parse(cls, text: str) -> AllocatorSettings:
        """Read `key:value,key:value`, everything not named at its default.

        Raises: AllocatorConfigError, with what was found and what would do.
        """
        return cls().updated(text)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> AllocatorSettings:
        """Read the first of PyTorch's environment variables that is set; without one, defaults.

        Raises: AllocatorConfigError, as `parse`.
        """
        for name in ENVIRONMENT_VARIABLES:
            if name in environment:
                return cls.parse(environment[name])
        return cls()

    def updated(self, text: str) -> AllocatorSettings:
        """Change settings as torch._C._accelerator_setAllocatorSettings(text) does.

        As there, splitting, rounding and garbage collection fall back to their defaults unless
        named; everything else stays as it was.
        """
        values = _split(text)
        large_segment_bytes = self.large_segment_bytes
        if "large_segment_size_mb" in values:
            large_segment_bytes = _large_segment(values["large_segment_size_mb"])
        changed: dict[str, Any] = {
            "text": text,
            "large_segment_bytes": large_segment_bytes,
            "max_split_size_bytes": None,
            "max_non_split_rounding_bytes": large_segment_bytes,
            "garbage_collection_threshold": 0.0,
            "roundup_power2_divisions": (0,) * ROUNDUP_INTERVALS,
        }
        for key, value in values.items():
            if key in _NOT_BELOW_LARGE_SEGMENT:
                field = _NOT_BELOW_LARGE_SEGMENT[key]
                changed[field] = _at_least(key, value, large_segment_bytes)
            elif key != "large_segment_size_mb":
                field, read = _OPTIONS[key]
                changed[field] = read(key, value)
        return replace(self, **changed)

    @property
    def active_roundup_divisions(self) -> tuple[int, ...]:
        """`roundup_power2_divisions`, or () when no interval rounds to powers of two."""
        divisions = self.roundup_power2_divisions
        return divisions if any(steps > 1 for steps in divisions) else ()


def _split(text: str) -> dict[str, str]:
    """Cut a text into options. White space counts for nothing, a comma may end it."""
    compact = "".join(text.split())
    values: dict[str, str] = {}
    position = 0
    while position < len(compact):
        match = _ITEM.match(compact, position)
        if match is None:
            raise AllocatorConfigError(
                f"cannot read {compact[position:]!r} in allocator settings {text!r}; "
                "write key:value pairs with commas between them, such as "
                "'expandable_segments:True,max_split_size_mb:128'"
            )
        key, value = match["key"], match["value"]
        if key not in KNOWN_OPTIONS:
            raise AllocatorConfigError(
                f"unknown option {key!r} in allocator settings {text!r}; "
                f"known are {', '.join(KNOWN_OPTIONS)}"
            )
        values[key] = value
        position = match.end()
    return values


def _bad(key: str, value: str, expected: str) -> AllocatorConfigError:
    return AllocatorConfigError(f"{key} cannot be {value!r}: it must be {expected}")


def _flag(key: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise _bad(key, value, "True or False")
    return value == "True"


def _whole(key: str, value: str, expected: str = "a whole number") -> int:
    if not (value.isascii() and value.isdigit()):
        raise _bad(key, value, expected)
    return int(value)


def _mebibytes(key: str, value: str) -> int:
    return _whole(key, value, "a whole number of MiB") * MIB


def _positive_mebibytes(key: str, value: str) -> int:
    size_bytes = _mebibytes(key, value)
    if size_bytes == 0:
        raise _bad(key, value, "more than 0")
    return size_bytes


def _large_segment(value: str) -> int:
    size_bytes = _mebibytes("large_segment_size_mb", value)
    if size_bytes <= OWN_SEGMENT_FROM_BYTES:
        raise _bad("large_segment_size_mb", value, f"more than {OWN_SEGMENT_FROM_BYTES // MIB} MiB")
    return size_bytes


def _at_least(key: str, value: str, minimum_bytes: int) -> int:
    size_bytes = _mebibytes(key, value)
    if size_bytes < minimum_bytes:
        raise _bad(key, value, f"at least large_segment_size_mb, {minimum_bytes // MIB} MiB")
    return size_bytes


def _fraction(key: str, value: str, allowed: Callable[[float], bool], expected: str) -> float:
    try:
        fraction = float(value)
    except ValueError:
        raise _bad(key, value, expected) from None
    if not allowed(fraction):
        raise _bad(key, value, expected)
    return fraction


def _threshold(key: str, value: str) -> float:
    return _fraction(key, value, lambda share: 0 < share < 1, "between 0 and 1, both excluded")


def _memory_fraction(key: str, value: str) -> float:
    return _fraction(key, value, lambda share: 0 <= share <= 1, "from 0 to 1")


def _segment_reserve(key: str, value: str) -> int | float:
    """A fraction such as 0.5, or a size such as 40G. Source: `parseReserveSpec`, PyTorch 2.15."""
    is_size = value.endswith("G")
    expected = "more than 0: a fraction of the GPU's memory such as 0.5, or a size such as 40G"
    number = _fraction(key, value.removesuffix("G"), lambda number: 0 < number < inf, expected)
    return int(number * GIB) if is_size else number


def _backend(key: str, value: str) -> str:
    if value not in ("native", "cudaMallocAsync"):
        raise _bad(key, value, "native or cudaMallocAsync")
    return value


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0


def _register_threads(key: str, value: str) -> int:
    threads = _whole(key, value)
    if not (_is_power_of_two(threads) and threads <= MAX_REGISTER_THREADS):
        raise _bad(key, value, f"a power of two up to {MAX_REGISTER_THREADS}")
    return threads


def _divisions(key: str, value: str) -> tuple[int, ...]:
    """One number for every interval, or a list such as [256:1,512:2,1024:4,>:8].

    In a list, what stands before the colon is an interval in MiB. The first interval's number also
    holds for all below it, the one of `>` for all above the last; gaps between stay unrounded.
    """
    if not value.startswith("["):
        steps = _whole(key, value)
        if not _is_power_of_two(steps):
            raise _bad(key, value, "a power of two, or a list such as [256:1,512:2,>:4]")
        return (steps,) * ROUNDUP_INTERVALS
    divisions = [0] * ROUNDUP_INTERVALS
    last = 0
    first = True
    for item in filter(None, value[1:-1].split(",")):
        interval_text, _, steps_text = item.partition(":")
        steps = _whole(key, steps_text, "a list of interval:divisions, such as [256:1,512:2,>:4]")
        if steps and not _is_power_of_two(steps):
            raise _bad(key, value, f"made of divisions that are 0 or powers of two, not {steps}")
        if interval_text == ">":
            divisions[last + 1 :] = [steps] * (ROUNDUP_INTERVALS - last - 1)
            continue
        interval = _whole(key, interval_text, "a list of intervals in MiB and their divisions")
        if not _is_power_of_two(interval):
            raise _bad(key, value, f"made of intervals that are powers of two, not {interval}")
        last = min(interval.bit_length() - 1, ROUNDUP_INTERVALS - 1)
        if first:
            divisions[:last] = [steps] * last
            first = False
        divisions[last] = steps
    return tuple(divisions)


_NOT_BELOW_LARGE_SEGMENT = {
    "max_split_size_mb": "max_split_size_bytes",
    "max_non_split_rounding_mb": "max_non_split_rounding_bytes",
}
"""Options whose smallest value depends on another one, and their fields."""

_OPTIONS: dict[str, tuple[str, Callable[[str, str], Any]]] = {
    "garbage_collection_threshold": ("garbage_collection_threshold", _threshold),
    "roundup_power2_divisions": ("roundup_power2_divisions", _divisions),
    "expandable_segments": ("expandable_segments", _flag),
    "expandable_segments_reserve": ("expandable_segments_reserve", _segment_reserve),
    "expandable_segments_reserve_by_class": (
        "expandable_segments_reserve_by_class",
        lambda _, value: value,
    ),
    "per_process_memory_fraction": ("per_process_memory_fraction", _memory_fraction),
    "throw_on_cudamalloc_oom": ("throw_on_cudamalloc_oom", _flag),
    "backend": ("backend", _backend),
    "release_lock_on_cudamalloc": ("release_lock_on_cudamalloc", _flag),
    "release_lock_on_hipmalloc": ("release_lock_on_cudamalloc", _flag),
    "graph_capture_record_stream_reuse": ("graph_capture_record_stream_reuse", _flag),
    "pinned_use_cuda_host_register": ("pinned_use_cuda_host_register", _flag),
    "pinned_use_hip_host_register": ("pinned_use_cuda_host_register", _flag),
    "pinned_num_register_threads": ("pinned_num_register_threads", _register_threads),
    "pinned_use_background_threads": ("pinned_use_background_threads", _flag),
    "pinned_reserve_segment_size_mb": ("pinned_reserve_segment_bytes", _positive_mebibytes),
    "pinned_free_catch_all": ("pinned_free_catch_all", _flag),
    "pinned_max_round_threshold_mb": ("pinned_max_round_threshold_bytes", _mebibytes),
    "pinned_max_cached_size_mb": ("pinned_max_cached_size_bytes", _mebibytes),
}
"""Options that stand alone: their field, and what reads the value."""

KNOWN_OPTIONS = (*_NOT_BELOW_LARGE_SEGMENT, "large_segment_size_mb", *_OPTIONS)
"""Every key that PYTORCH_CUDA_ALLOC_CONF may hold."""
