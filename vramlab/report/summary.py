"""What a run found, as data. Knows nothing of torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from vramlab.categories import Category
from vramlab.measure.timeline import Frame
from vramlab.native.report import SubstituteCall
from vramlab.report.evidence.stages import StageUse

FORMAT = 1
"""Version of the JSON form; raised when a field changes its meaning."""


@dataclass
class StepCounts:
    """What a program has done until now."""

    has_optimizer: bool = False
    """Whether it has made an optimizer of torch.optim, or one that inherits from those."""
    optimizer_steps: int = 0
    """Of all optimizers together."""
    updates_by_hand: int = 0
    """Steps that a program without an optimizer has begun."""
    backward_passes: int = 0
    """Outermost ones."""
    forward_passes: int = 0
    """Of modules with parameters, all of them."""
    has_states: bool = False
    """Whether an optimizer keeps states from one step to the next."""
    decides_by_values: bool = False
    """Whether an optimizer keeps as many tensors as values say: torch.optim.LBFGS."""
    evaluations: int = 0
    """Those of them that recorded nothing for a backward pass."""

    @property
    def steps(self) -> int:
        """Training steps."""
        return self.optimizer_steps or self.updates_by_hand


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
    text: str = ""
    """What stands in the line, so that it is found again when it has moved."""


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
    """Whether the following fields describe the moment of the out-of-memory error, not the peak."""
    allocated_bytes: int
    """Allocated bytes at that moment."""
    reserved_bytes: int
    """Reserved bytes at that moment."""
    category_bytes: dict[Category, int]
    """Allocated bytes at that moment by what they are; they add up to `allocated_bytes`."""
    lines: tuple[LineUse, ...]
    """The lines that the blocks of that moment come from, most bytes first; all of them."""
    stages: tuple[StageUse, ...] = ()
    """Stages that the program has named."""

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


class Fit(StrEnum):
    """What a run says about whether a program fits."""

    FITS = "fits"
    AT_LEAST = "at least"
    """There was room for what was counted; the program may need more."""
    AT_MOST = "at most"
    """There was room for the most that the program can need."""
    ABOUT = "about"
    """There was room for what was counted; the program may need more or less."""
    DOES_NOT_FIT = "does not fit"
    MAY_NOT_FIT = "may not fit"
    """Memory ran out; the program may need less than was counted."""
    CUT_SHORT = "cut short"
    """The program ended before its time."""

    @property
    def had_room(self) -> bool | None:
        """Whether there was room for what was counted; None: the program ended before its time."""
        if self is Fit.CUT_SHORT:
            return None
        return self not in (Fit.DOES_NOT_FIT, Fit.MAY_NOT_FIT)

    @property
    def is_sure(self) -> bool:
        """Whether nothing that decides it is unknown."""
        return self in (Fit.FITS, Fit.AT_MOST, Fit.DOES_NOT_FIT)


@dataclass(frozen=True)
class Reason:
    """Why the peak that was measured is not the program's."""

    text: str
    """In words, to stand behind "because"."""
    at_most: bool = False
    """Whether too much was counted; else too little."""


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
    stopped_by: str | None
    """What ended it before its time: the option `--steps` or `--seconds`, a signal such as
    `SIGTERM`, or `os._exit`."""
    stuck_at: str | None
    """The line at which it stood when the process was ended in its place."""
    counts: StepCounts
    """What it had done until then."""
    ended_out_of_memory: bool
    """Whether that exception was torch.OutOfMemoryError, or was raised while handling one."""
    devices: tuple[DeviceUse, ...]
    """One for each GPU, by index."""
    out_of_memory: tuple[OutOfMemoryUse, ...]
    """One for each GPU that ran out of memory."""
    value_reads: dict[str, dict[str, int]]
    """'file:line: text' -> what was read there and how often, where no value exists."""
    read_of_failure: str | None
    """The line that read such a value, where the error depends on it."""
    counted_by_outputs: dict[str, int]
    """Ops without a kernel model, and how often each ran: only their outputs are counted."""
    substitute_calls: tuple[SubstituteCall, ...] = ()
    """On the native engine: functions of CUDA's libraries that have no meaning there, and how often
    each was called."""
    skipped_kernels: dict[str, int] = field(default_factory=dict)
    """Kernels of the program's own that did nothing on a virtual GPU, and how often each was
    launched."""
    caveats: tuple[str, ...] = ()
    """What to know of the answers, as sentences without a full stop."""
    rank: int = 0
    """Which rank of `torch.distributed` it was meant to be."""
    world_size: int = 1
    """Of how many."""
    is_told_by_first_rank: bool = False
    """Whether a first rank ran beside it, whose report says where the bytes are."""
    child_count: int = 0
    """How many Python programs it started, which report for themselves."""
    hint: str | None = None
    """What is known of its error, in a sentence."""
    gpu_facts: tuple[str, ...] | None = None
    """Which figures of the GPU it depended on, by their names in the catalogue; None: not known."""

    unsure_operators: dict[str, str] = field(default_factory=dict)
    """Operators that are not confirmed against PyTorch's own code, and what is not confirmed."""
    reasons: tuple[Reason, ...] = ()
    """Why the program may need more, or less, than was counted."""

    @property
    def outcome(self) -> Fit:
        """What the run says about whether the program fits."""
        kinds = {reason.at_most for reason in self.reasons}
        if self.ended_out_of_memory:
            return Fit.MAY_NOT_FIT if True in kinds else Fit.DOES_NOT_FIT
        if self.is_cut_short:
            return Fit.CUT_SHORT
        if not kinds:
            return Fit.FITS
        if len(kinds) > 1:
            return Fit.ABOUT
        return Fit.AT_MOST if True in kinds else Fit.AT_LEAST

    @property
    def fits(self) -> bool | None:
        """Whether the program fits; None: not known."""
        return self.outcome.had_room if self.outcome.is_sure else None

    @property
    def stopped(self) -> bool:
        """Return whether it was stopped after as many steps or seconds as were asked for."""
        return (self.stopped_by or "").startswith("--")

    @property
    def is_cut_short(self) -> bool:
        """Return whether the program ended early, and not after a requested number of steps."""
        if self.stopped:
            return self.counts.steps == 0
        is_own_end = self.stopped_by in (None, "os._exit") and self.error is None
        return self.status != 0 or not is_own_end

    def to_dict(self) -> dict[str, Any]:
        """Return the summary as plain dicts, lists, strings and numbers, ready for json.dump."""
        devices = [
            {**asdict(device), "needed_bytes": device.needed_bytes} for device in self.devices
        ]
        told = {"fits": self.fits, "outcome": self.outcome, "stopped": self.stopped}
        return {"format": FORMAT, **told, **asdict(self), "devices": devices}
