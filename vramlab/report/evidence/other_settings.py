"""Replays a run under other allocator settings.

    tape = RequestTape(device.allocator)         before the program runs
    try_settings(tape, device.allocator, ...)    afterwards

The allocator's requests and frees are replayed in order. The replay is checked first: with the
run's own settings it must reserve exactly as many bytes as the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vramlab.allocator import (
    AllocatorEvent,
    AllocatorSettings,
    CachingAllocator,
    DeviceMemory,
    Precedence,
    replay,
)
from vramlab.table import Table
from vramlab.units import GIB, format_bytes

SETTINGS = (*replay.SETTINGS, "roundup_power2_divisions:4", "roundup_power2_divisions:8")
"""What is tried besides the run's own. The garbage collection threshold is left out: without a
memory fraction below 1, PyTorch collects nothing."""

_UNLIMITED_BYTES = 512 * GIB

_MOST_SEARCHED = 30_000
"""Requests of a run above which the smallest memory is not searched: some 15 replays a setting."""


class RequestTape(replay.Requests):
    """The requests and frees of one allocator, from now until memory first runs out.

    Args:
        allocator: whose.
    """

    def __init__(self, allocator: CachingAllocator) -> None:
        super().__init__()
        self._live: dict[int, int] = {}  # request numbers by address
        allocator.add_trace_tracker(self._note)

    def _note(self, event: AllocatorEvent) -> None:
        if self.failed_bytes is not None:
            return
        match event.action:
            case "alloc":
                number = self.allocate(event.size_bytes, event.stream, event.pool_id)
                self._live[event.address] = number
            case "free_completed":
                if event.address in self._live:  # else it was there before
                    self.free(self._live.pop(event.address))
            case "oom":
                self.fail(event.size_bytes, event.stream)


@dataclass(frozen=True)
class Trial:
    """What becomes of a run's requests under some settings."""

    settings: str
    """As PYTORCH_CUDA_ALLOC_CONF takes them; empty: PyTorch's defaults."""
    is_own: bool
    """Whether the run had them."""
    reserved_bytes: int
    """The peak that PyTorch reserves on a GPU where memory does not run out."""
    smallest_bytes: int | None
    """The least memory of a GPU that suffices, with its CUDA context, to 2 MiB; found by bisection.
    PyTorch then frees its cache when memory runs out. None: not searched, the run is too long."""
    fits: bool
    """Whether the run's GPU could serve all requests."""


def try_settings(
    tape: RequestTape,
    allocator: CachingAllocator,
    reserved_bytes: int,
    precedence: Precedence,
    tell: Callable[[str], None] = lambda words: None,
) -> list[Trial] | str:
    """Replay a run's requests under its own settings and under `SETTINGS`.

    Args:
        tape: the requests.
        allocator: of the run, as it is at the end.
        reserved_bytes: the run's peak of reserved memory.
        precedence: as the run's allocator has it.
        tell: called with the settings that are about to be replayed.

    Returns:
        The trials, or why there are none.
    """
    memory, fraction = allocator.memory, allocator.memory_fraction
    context_bytes = memory.context_bytes

    def played(settings: AllocatorSettings, total_bytes: int | None) -> tuple[int, bool]:
        gpu = DeviceMemory(_UNLIMITED_BYTES if total_bytes is None else total_bytes)
        gpu.context_bytes = context_bytes
        other = CachingAllocator(gpu, settings, precedence=precedence)
        other.memory_fraction = 1.0 if total_bytes is None else fraction
        fits = tape.play(other)
        return other.stats()["reserved_bytes"]["all"]["peak"], fits

    def smallest(settings: AllocatorSettings, enough_bytes: int) -> int:
        return replay.least_memory(
            lambda size_bytes: played(settings, max(size_bytes, context_bytes))[1],
            enough_bytes,
            context_bytes,
        )

    tell("the run's own settings")
    own = allocator.settings
    replayed = played(own, memory.total_bytes)
    if replayed != (reserved_bytes, tape.failed_bytes is None):
        return (
            f"a replay with the run's own settings reserves {format_bytes(replayed[0])}, but the "
            f"run reserved {format_bytes(reserved_bytes)}. Programs that call empty_cache(), or "
            "continue after running out of memory, cannot be replayed"
        )
    trials = []
    for text in dict.fromkeys((own.text, *SETTINGS)):
        tell(text or "the defaults")
        settings = own if text == own.text else AllocatorSettings.parse(text)
        _, fits = replayed if text == own.text else played(settings, memory.total_bytes)
        peak_bytes, _ = played(settings, None)
        is_searched = tape.count <= _MOST_SEARCHED
        smallest_bytes = smallest(settings, peak_bytes + context_bytes) if is_searched else None
        trials.append(Trial(text, text == own.text, peak_bytes, smallest_bytes, fits))
    return trials


def settings_table(index: int, tape: RequestTape, trials: Sequence[Trial], gpu: str) -> Table:
    """Show the trials of one GPU, the run's own first.

    Args:
        index: of the GPU.
        tape: what was replayed.
        trials: what became of it.
        gpu: the GPU's name.
    """
    until = "" if tape.failed_bytes is None else ", up to the failed one"
    return Table(
        f"cuda:{index}: the run's {tape.count:,} allocations under other settings{until}",
        ("PYTORCH_CUDA_ALLOC_CONF", "reserved", "smallest GPU", gpu),
        tuple(
            (
                (trial.settings or "(defaults)") + (", this run" if trial.is_own else ""),
                format_bytes(trial.reserved_bytes),
                "-" if trial.smallest_bytes is None else format_bytes(trial.smallest_bytes),
                "fits" if trial.fits else "out of memory",
            )
            for trial in trials
        ),
        (
            "reserved: peak on a GPU with unlimited memory.",
            "smallest GPU: device memory that is enough, including the CUDA context. PyTorch frees",
            "its cache when memory runs out, so this can be less than the reserved peak.",
        ),
    )
