"""What a run found, as data. Knows nothing of torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from vramlab.measure.categories import Category
from vramlab.measure.timeline import Frame
from vramlab.native.report import SubstituteCall

FORMAT = 1
"""Version of the JSON form; raised when a field changes its meaning."""


@dataclass(frozen=True)
class LineUse:
    """A line of the program, with what it had allocated at a moment."""

    line: Frame | None
    """The innermost line outside of PyTorch; None if there is none."""
    caller: Frame | None
    """The line of the user's own code that led there, where `line` is in an installed package."""
    size_bytes: int
    """Allocated bytes of its blocks; in all categories together."""
    block_count: int
    """How many blocks they are."""
    category_bytes: dict[Category, int]
    """The same bytes by what they are, most first."""


@dataclass(frozen=True)
class DeviceUse:
    """The memory of one GPU: what the program needed, and what it consisted of when most was."""

    index: int
    """CUDA device index."""
    total_bytes: int
    """Memory of the GPU."""
    context_bytes: int
    """The CUDA context; 0 if the program did not use this GPU."""
    context_is_estimated: bool
    """Whether the catalogue's figure is an estimate."""
    peak_reserved_bytes: int
    """The most that PyTorch's allocator had taken from the driver."""
    peak_allocated_bytes: int
    """The most that tensors and workspaces took, rounding included."""
    at_out_of_memory: bool
    """Whether what follows is told of the moment when the program ran out of memory, not of the
    peak."""
    allocated_bytes: int
    """Allocated bytes at the moment that is told of."""
    reserved_bytes: int
    """Reserved bytes at that moment."""
    category_bytes: dict[Category, int]
    """Allocated bytes at that moment by what they are; they add up to `allocated_bytes`."""
    lines: tuple[LineUse, ...]
    """The lines that the blocks of that moment come from, most bytes first; all of them."""

    @property
    def needed_bytes(self) -> int:
        """The most that the driver counted for the program: reserved memory and context."""
        return self.peak_reserved_bytes + self.context_bytes


@dataclass(frozen=True)
class OutOfMemoryUse:
    """The last request of a GPU that could not be served."""

    device: int
    """CUDA device index."""
    count: int
    """How many there were on this GPU."""
    segment_bytes: int
    """What the driver was asked for by the last."""
    line: Frame | None
    """The line at fault; for the backward pass the line whose gradient was computed."""
    in_backward: bool
    """Whether it was in the backward pass."""


@dataclass(frozen=True)
class Summary:
    """What a run found."""

    program: str
    """The command line of the program."""
    folder: str
    """Where it was started: the current folder then."""
    gpu: str
    """Name in the catalogue."""
    gpu_count: int
    """How many there were."""
    engine: str
    """`portable`: the virtual GPU; `native`: PyTorch's own CUDA code."""
    why: str
    """Why that engine was taken; empty: there was no choice."""
    torch_version: str
    """The PyTorch whose rules were followed, or that ran."""
    seconds: float
    """How long the program ran here; it says nothing of a real GPU's speed."""
    status: int
    """The program's exit status."""
    error: str | None
    """'ValueError: ...' if it ended in an exception, else None."""
    stopped: bool
    """Whether it was stopped after as many optimizer steps as were asked for."""
    ended_out_of_memory: bool
    """Whether that exception was torch.OutOfMemoryError, or was raised while handling one."""
    devices: tuple[DeviceUse, ...]
    """One for each GPU, by index."""
    out_of_memory: tuple[OutOfMemoryUse, ...]
    """One for each GPU that ran out of memory."""
    value_reads: dict[str, dict[str, int]]
    """'file:line: text' -> what was read there and how often, where no value exists."""
    counted_by_outputs: dict[str, int]
    """Ops whose kernels nobody has read yet, and how often each ran: counted by outputs only."""
    substitute_calls: tuple[SubstituteCall, ...]
    """On the native engine: functions of CUDA's libraries that have no meaning there, and how often
    each was called."""

    @property
    def fits(self) -> bool | None:
        """Tell whether there was memory enough; None if the program failed before that."""
        if self.ended_out_of_memory:
            return False
        return True if self.error is None else None

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain dicts, lists, strings and numbers, ready for json.dump."""
        devices = [
            {**asdict(device), "needed_bytes": device.needed_bytes} for device in self.devices
        ]
        return {"format": FORMAT, "fits": self.fits, **asdict(self), "devices": devices}
