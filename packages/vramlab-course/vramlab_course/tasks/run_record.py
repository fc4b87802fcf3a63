"""All that a program does on virtual GPUs: each operator, and each block of memory.

Time is counted in ticks, on each GPU. One passes when a block is taken or given back there, and
when an operator has run: so there is a moment for everything, and none in which nothing happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vramlab.units import format_bytes
from vramlab_classroom.judge.lazy import torch

if TYPE_CHECKING:
    from vramlab import VirtualGPU
    from vramlab_course.tasks.work import Work

ROUNDED_TO_BYTES = 512
"""Blocks are multiples of it; under `NO_RESTS` they have nothing else that was not asked for."""

MOST_NAMED = 3


@dataclass(frozen=True)
class RecordedStep:
    """Something that has been done: an operator, or what a workshop counts instead."""

    name: str
    """Such as `mm`."""

    gpu: int
    start: int
    """The tick in which it begins; it ends in the tick before `end`."""

    end: int


@dataclass
class RecordedBlock:
    """A block of memory."""

    name: str
    """What it was made by and, where that is a result, its shape and dtype."""

    gpu: int
    size_bytes: int
    born: int
    """The first tick in which it is there."""

    freed: int | None = None
    """The first tick in which it is not."""

    def lives_at(self, tick: int) -> bool:
        """Return whether it is there in a tick."""
        return self.born <= tick and (self.freed is None or tick < self.freed)


@dataclass
class RunRecord:
    """What a program has done so far; empty unless it was recorded."""

    steps: list[RecordedStep] = field(default_factory=list)
    """The operators that compute or copy something, in order."""

    marks: list[RecordedStep] = field(default_factory=list)
    """What the functions have done that a workshop gives to programs."""

    blocks: list[RecordedBlock] = field(default_factory=list)
    """All that were taken meanwhile."""

    held_bytes: dict[int, list[int]] = field(default_factory=dict)
    """What is allocated on each GPU, tick by tick; the first is what the program was given."""

    def now(self, gpu: int = 0) -> int:
        """Return the current tick of a GPU."""
        return len(self.held_bytes[gpu]) - 1

    @contextmanager
    def marking(self, name: str, gpu: int = 0) -> Iterator[None]:
        """Mark what the body does."""
        start = self.now(gpu)
        yield
        self._tick(gpu)
        self.marks.append(RecordedStep(name, gpu, start, self.now(gpu)))

    def peak_tick(self, gpu: int) -> int:
        """Return the first tick in which most is allocated on a GPU."""
        held_bytes = self.held_bytes[gpu]
        return held_bytes.index(max(held_bytes))

    def largest_at_peak(self) -> str:
        """List the largest blocks at the peak of the fullest GPU, and their sum."""
        gpu = max(self.held_bytes, key=lambda each: max(self.held_bytes[each]))
        tick = self.peak_tick(gpu)
        sums: Counter[str] = Counter({"what it was given": self.held_bytes[gpu][0]})
        counts: Counter[str] = Counter()
        for block in self.blocks:
            if block.gpu == gpu and block.lives_at(tick):
                sums[block.name] += block.size_bytes
                counts[block.name] += 1
        return "; ".join(
            f"{format_bytes(size_bytes)}: {_times(counts[name])}{name}"
            for name, size_bytes in sums.most_common(MOST_NAMED)
        )

    def _tick(self, gpu: int) -> None:
        self.held_bytes[gpu].append(self.held_bytes[gpu][-1])


def _times(count: int) -> str:
    return f"{count} x " if count > 1 else ""


@contextmanager
def recording(gpu: VirtualGPU, work: Work, record: RunRecord) -> Iterator[None]:
    """Record what the body does on an attached virtual GPU, while its work is counted.

    The GPU's allocator settings have to be `NO_RESTS`.
    """
    from vramlab.gpu.core.observers import Observer

    living: dict[tuple[int, int], RecordedBlock] = {}
    running: list[tuple[str, dict[int, int]]] = []

    def heard(device: int, action: str, address: int, requested_bytes: int) -> None:
        if action not in ("alloc", "free_requested") or not is_open:
            return
        record._tick(device)
        size_bytes = -(-requested_bytes // ROUNDED_TO_BYTES) * ROUNDED_TO_BYTES
        if action == "alloc":
            name = f"within {running[-1][0]}" if running else "made by itself"
            block = RecordedBlock(name, device, size_bytes, record.now(device))
            living[device, address] = block
            record.blocks.append(block)
        else:
            if (device, address) in living:
                living.pop((device, address)).freed = record.now(device)
            size_bytes = -size_bytes
        record.held_bytes[device][-1] += size_bytes

    class StepsAndBlocks(Observer):
        def op_begins(self, func: Any, args: Sequence[Any], kwargs: Any) -> None:
            starts = {index: record.now(index) for index in record.held_bytes}
            running.append((func._schema.name.partition("::")[2].strip("_"), starts))

        def op_ran(self, func: Any, args: Sequence[Any], kwargs: Any, result: Any) -> None:
            name, starts = running[-1]
            for tensor in result if isinstance(result, tuple | list) else (result,):
                _name_block(living, name, tensor)
            if not work.is_paused and not func.is_view and not name.startswith(("empty", "new_em")):
                index = max(0, *(_device_of(each) for each in (*args, result)))
                record._tick(index)
                record.steps.append(RecordedStep(name, index, starts[index], record.now(index)))

        def op_ends(self, func: Any) -> None:
            running.pop()

    for index in range(gpu.count):
        record.held_bytes[index] = [torch.cuda.memory_allocated(index)]
        gpu.machine.device(index).allocator.add_trace_tracker(
            lambda event, index=index: heard(  # type: ignore[misc]
                index, event.action, event.address, event.size_bytes
            )
        )
    is_open = True
    try:
        with gpu.machine.observing(StepsAndBlocks()):
            yield
    finally:
        is_open = False


def _name_block(living: dict[tuple[int, int], RecordedBlock], name: str, tensor: Any) -> None:
    """Name the block of an operator's result after it."""
    from vramlab.gpu.core.storage_record import record_of

    stored = record_of(tensor) if isinstance(tensor, torch.Tensor) else None
    if stored is None or stored.block is None:
        return
    block = living.get((stored.device_index, stored.block.address))
    if block is not None and block.name == f"within {name}":
        dtype = str(tensor.dtype).removeprefix("torch.")
        block.name = f"result of {name}, {list(tensor.shape)} {dtype}"


def _device_of(value: Any) -> int:
    from vramlab.gpu.ops.copies import device_index_of

    return int(device_index_of(value)) if isinstance(value, torch.Tensor) else -1
