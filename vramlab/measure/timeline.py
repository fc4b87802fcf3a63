"""A GPU's memory over time: every block, from the event that allocated it to the one that freed it.

A `Timeline` is data. `recording.record_timeline` makes one from a running program,
`rebuild.timeline_from_snapshots` from any two torch snapshots.

Time is counted in allocator events: position `p` is the moment before event `p`, so there is one
position more than there are events.

Allocated bytes change where torch changes them: up at `alloc`, down at `free_requested`. (A block
that another stream still uses stays active until `free_completed`, but no longer counts as
allocated.)

What a block counts for is more than was asked for, and both additions are kept apart:

    size_bytes = requested_bytes + rounding_bytes + remainder_bytes

`rounding` is to 512 bytes (or as the settings say). `remainder` is what the allocator did not find
worth splitting off the free block it used, up to 1 MiB in the large pool. The sum over the blocks
that live at the peak is compared with torch.cuda.max_memory_allocated(): `unexplained_bytes` is the
difference, and it is 0 when the trace explains everything.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Frame:
    """One line of a Python traceback."""

    filename: str
    line: int
    function: str


@dataclass(frozen=True, slots=True)
class BlockLife:
    """One block, from its allocation to its release."""

    address: int
    """Where it lies in device memory."""
    requested_bytes: int
    """What the program asked for."""
    rounded_bytes: int
    """The request rounded up to what the allocator deals in."""
    size_bytes: int
    """What the block counts for in torch.cuda.memory_allocated()."""
    stream: int
    """The CUDA stream it was allocated for."""
    born: int
    """Index of its alloc event; -1 if it was there before the recording began."""
    freed: int | None
    """Index of its free_requested event; None if it outlived the recording."""
    frames: tuple[Frame, ...]
    """Where it was allocated, innermost first; empty if unknown (or on autograd's own thread)."""
    size_known: bool = True
    """False if the size is only the rounded request, because the trace does not show the rest."""

    @property
    def rounding_bytes(self) -> int:
        """Added by rounding the request up."""
        return self.rounded_bytes - self.requested_bytes

    @property
    def remainder_bytes(self) -> int:
        """The unsplit remainder of the free block that served it."""
        return self.size_bytes - self.rounded_bytes

    def lives_at(self, position: int) -> bool:
        """Return whether it is allocated at a position."""
        return self.born < position and (self.freed is None or position <= self.freed)


@dataclass(frozen=True, slots=True)
class TimelineStage:
    """A named stretch of a timeline."""

    name: str
    start: int
    """First position."""
    end: int
    """Last position; the next stage may start there."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A tensor that was seen at an address at some moment."""

    position: int
    address: int
    """Where its storage begins."""
    category: str
    """What it is to the program, one of `vramlab.measure.Category`."""
    label: str
    """Its name, such as 'encoder.weight'."""


@dataclass(frozen=True, slots=True)
class OutOfMemoryEvent:
    """A request that could not be served."""

    position: int
    requested_bytes: int
    """What the allocator tried to get, as torch's message says it."""
    device_free_bytes: int
    """What was free on the device then."""


@dataclass(frozen=True)
class TimelineMoment:
    """All that is allocated at one position of a timeline."""

    position: int
    stage: str | None
    """Name of the stage that runs there, or None."""
    blocks: tuple[BlockLife, ...]
    """The live blocks, largest first."""
    reserved_bytes: int
    """Taken from the driver at that position."""

    @property
    def allocated_bytes(self) -> int:
        """Add up the allocated blocks, as torch.cuda.memory_allocated() does."""
        return sum(block.size_bytes for block in self.blocks)

    @property
    def requested_bytes(self) -> int:
        """The part of it that the program asked for."""
        return sum(block.requested_bytes for block in self.blocks)

    @property
    def rounding_bytes(self) -> int:
        """The part of it that rounding added."""
        return sum(block.rounding_bytes for block in self.blocks)

    @property
    def remainder_bytes(self) -> int:
        """The part of it that was not worth splitting off."""
        return sum(block.remainder_bytes for block in self.blocks)

    @property
    def cached_bytes(self) -> int:
        """Reserved but not allocated."""
        return self.reserved_bytes - self.allocated_bytes


@dataclass(frozen=True)
class Timeline:
    """Events of one device's memory while it was recorded.

    Known limitations: memory that does not come from PyTorch's caching allocator (the CUDA
    context, NCCL, other libraries) is in no trace and not in here.
    """

    device: int
    """Index of the GPU."""
    event_count: int
    """How many allocator events were recorded; positions run from 0 to this number."""
    blocks: tuple[BlockLife, ...]
    """Every block that lived meanwhile, in the order of birth."""
    stages: tuple[TimelineStage, ...]
    """What was marked, in order."""
    sightings: tuple[Sighting, ...]
    """Tensors seen at their addresses, in order."""
    allocated_bytes: tuple[int, ...]
    """Allocated bytes at every position."""
    reserved_bytes: tuple[int, ...]
    """Reserved bytes at every position."""
    out_of_memory: tuple[OutOfMemoryEvent, ...]
    """Requests that failed."""
    backward_passes: tuple[tuple[int, int], ...] = ()
    """First and last position of each time that autograd's engine ran."""
    measured_peak_bytes: int | None = None
    """torch.cuda.max_memory_allocated() over the same time; None if not measured."""

    @property
    def peak_bytes(self) -> int:
        """Highest allocated bytes, added up from the trace."""
        return max(self.allocated_bytes)

    @property
    def unexplained_bytes(self) -> int | None:
        """PyTorch's own peak minus the one added up from the trace; None if not measured."""
        if self.measured_peak_bytes is None:
            return None
        return self.measured_peak_bytes - self.peak_bytes

    def peak(self) -> TimelineMoment:
        """Find the first moment at which most is allocated, with the blocks that live then."""
        return self.at(self.allocated_bytes.index(self.peak_bytes))

    def at(self, position: int) -> TimelineMoment:
        """Find all that is allocated at a position (0 to `event_count`)."""
        if not 0 <= position <= self.event_count:
            raise IndexError(f"position {position} is outside 0..{self.event_count}")
        live = [block for block in self.blocks if block.lives_at(position)]
        return TimelineMoment(
            position=position,
            stage=self.stage_at(position),
            blocks=tuple(sorted(live, key=lambda block: -block.size_bytes)),
            reserved_bytes=self.reserved_bytes[position],
        )

    def left_by(self, stage: str) -> TimelineMoment:
        """Find what a stage allocated and nothing freed until the end of the timeline.

        Record a few more stages after this one: what a step passes on to the next is freed by then,
        and what remains is still referenced.

        Raises:
            ValueError: there is no such stage.
        """
        if all(known.name != stage for known in self.stages):
            raise ValueError(f"no stage {stage!r}; there are: {[s.name for s in self.stages]}")
        end = self.at(self.event_count)
        left = (block for block in end.blocks if self.stage_at(block.born + 1) == stage)
        return replace(end, stage=stage, blocks=tuple(left))

    def in_backward(self, position: int) -> bool:
        """Return whether autograd's engine ran the events that lead to a position."""
        return any(start < position <= end for start, end in self.backward_passes)

    def stage_at(self, position: int) -> str | None:
        """Name of the stage whose events lead to a position; None outside of all stages."""
        for stage in self.stages:
            if stage.start < position <= stage.end:
                return stage.name
        return None
