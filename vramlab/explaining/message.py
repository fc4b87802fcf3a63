"""Read PyTorch's out-of-memory messages in a log, and say what their numbers suggest.

The layouts, each checked in the strings of that release's libc10_cuda.so:

    1.4.0             (GPU 0; A total capacity; B already allocated; C free; D reserved ...)
    1.10.2, 2.0.1     the same, with `E allowed;` before D if a memory fraction is set
    2.1.2             GPU 0 has a total capacty of A of which C is free. Process N has ... in use.
    2.2.2             the same, spelled `capacity`
    2.13.0, 2.14.1    also `with F allocated in private pools (e.g., CUDA Graphs)`
    2.15.0            also `exceeds the expandable-segment reserve of G`
    2.0.1 to 2.15.0   cudaMallocAsync: `Allocation on device 0 would exceed allowed memory.`

The messages round every size to two decimals of its unit.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from vramlab import catalogue
from vramlab.errors import VramlabError
from vramlab.units import GIB, format_bytes, parse_bytes

_ROUNDING_BYTES = GIB // 100
"""Two sizes of a message, each rounded to 0.01 GiB, may be this far apart and mean the same."""

_BAR = 60
"""Characters that stand for the whole GPU."""


class NoMessage(VramlabError):
    """A text holds no out-of-memory message with numbers; the message says what to look for."""


class Reading(StrEnum):
    """What the numbers of a message suggest."""

    LARGER_THAN_GPU = "request larger than the GPU"
    LIMIT = "a limit below the GPU's memory"
    SEGMENT_RESERVE = "request larger than an expandable segment"
    ANOTHER_RANK = "another rank on the same GPU"
    OTHER_PROCESSES = "other processes"
    FRAGMENTATION = "fragmentation"
    PRIVATE_POOLS = "memory kept for CUDA graphs"
    FREE_SUFFICED = "enough memory was free"
    FULL = "the program's own tensors"


@dataclass(frozen=True)
class OutOfMemory:
    """One message's numbers; None where its layout does not have one."""

    requested_bytes: int
    """What PyTorch asked the driver for."""
    device: int
    """The GPU's number, as the process that failed counts."""
    total_bytes: int
    free_bytes: int
    allocated_bytes: int | None = None
    """Tensors, and (2.13 does, 2.2 does not) the free memory of private pools."""
    reserved_bytes: int | None = None
    """What PyTorch has from the driver: tensors and its cache."""
    allowed_bytes: int | None = None
    """The limit of `torch.cuda.set_per_process_memory_fraction`."""
    private_pools_bytes: int | None = None
    """The free memory of private pools, which only their CUDA graphs can use."""
    segment_reserve_bytes: int | None = None
    """The addresses of one expandable segment, if the request is larger."""
    this_process_bytes: int | None = None
    processes_bytes: tuple[tuple[int, int], ...] = ()
    """Number and bytes of each process that the message names besides `this process`."""
    torch_version: str = ""
    """Which versions of PyTorch write this layout."""
    ranks: tuple[str, ...] = field(default=(), compare=False)
    """The prefixes of the lines that had it, such as `rank3`."""
    line: int = field(default=1, compare=False)
    """Where it begins first, from 1."""
    times: int = field(default=1, compare=False)
    """How often the log has it."""

    @property
    def capacity_bytes(self) -> int:
        """What the program may have in all."""
        return min(self.total_bytes, self.allowed_bytes or self.total_bytes)

    @property
    def cached_bytes(self) -> int:
        """Reserved by PyTorch, but not allocated."""
        return max(0, (self.reserved_bytes or 0) - (self.allocated_bytes or 0))

    @property
    def own_bytes(self) -> int:
        """What the program's process has, or what of it the message shows.

        In a container, a process sees its own entry under a number that is not its own. The entry
        closest above what PyTorch reserved is taken for it.
        """
        listed_bytes = self._listed_bytes()
        return max(listed_bytes or 0, self.reserved_bytes or 0)

    @property
    def knows_own(self) -> bool:
        """Whether the message has an entry for the program's process."""
        return self._listed_bytes() is not None

    def _listed_bytes(self) -> int | None:
        if self.this_process_bytes is not None:
            return self.this_process_bytes
        least_bytes = (self.reserved_bytes or 0) - _ROUNDING_BYTES
        return min((used for _, used in self.processes_bytes if used >= least_bytes), default=None)

    @property
    def others_bytes(self) -> int:
        """What is in use beyond `own_bytes`: other processes, and a context no entry covers."""
        beyond_bytes = self.total_bytes - self.free_bytes - self.own_bytes
        return beyond_bytes if beyond_bytes > _ROUNDING_BYTES else 0


_SIZE = r"(\d+(?:\.\d+)?(?:bytes|[KMG]iB))"
_HEAD = rf"(?:CUDA|HIP)outofmemory\.Triedtoallocate(?P<requested>{_SIZE[1:-1]})"


def _size(name: str) -> str:
    return rf"(?P<{name}>{_SIZE[1:-1]})"


# Terminals and loggers break lines anywhere, so the patterns are for text without any whitespace.
_OLD = re.compile(
    rf"{_HEAD}\(GPU(?P<device>\d+);{_size('total')}totalcapacity;"
    rf"{_size('allocated')}alreadyallocated;{_size('free')}free;"
    rf"(?:{_size('allowed')}allowed;)?{_size('reserved')}reservedintotalbyPyTorch\)"
    r"(?P<split_hint>Ifreservedmemoryis>>)?"
)
_NEW = re.compile(
    rf"{_HEAD}\.GPU(?P<device>\d+)hasatotal(?P<word>capaci?ty)of{_size('total')}"
    rf"ofwhich{_size('free')}isfree\."
    rf"(?P<processes>(?:(?:Process\d+|Includingnon-PyTorchmemory,thisprocess)has{_SIZE}"
    r"memoryinuse\.)*)"
    rf"(?:{_size('allowed')}allowed;)?"
    rf"(?:Oftheallocatedmemory{_size('allocated')}isallocatedbyPyTorch"
    rf"(?:,with{_size('private')}allocatedinprivatepools\(e\.g\.,CUDAGraphs\))?"
    rf"(?:,and{_size('cached')}isreservedbyPyTorchbutunallocated)?)?"
    rf"(?:\.Thisallocationexceedstheexpandable-segmentreserveof{_size('segment')})?"
)
_LIBRARY_FAILED = re.compile(
    r"CU(?:BLAS|DNN|FFT|SOLVER|SPARSE)_(?:STATUS_)?(?:\w+_)?ALLOC(?:ATION)?_FAILED"
    r"|CUBLAS_STATUS_NOT_INITIALIZED(?=.*cublasCreate)|NCCL.*'out of memory'"
)
_ASYNC = re.compile(
    r"Allocationondevice(?P<device>\d+)wouldexceedallowedmemory\.\(outofmemory\)"
    rf"Currentlyallocated:{_size('allocated')}Requested:{_size('requested')}"
    rf"Devicelimit:{_size('total')}Free\(accordingtoCUDA\):{_size('free')}"
    rf"PyTorchlimit\(setbyuser-suppliedmemoryfraction\):{_size('allowed')}"
)
_LAYOUTS = (_OLD, _NEW, _ASYNC)
_PROCESS = re.compile(rf"(?:Process(?P<number>\d+)|thisprocess)has{_size('used')}memoryinuse")

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_LABEL = re.compile(
    r"\[?(?P<rank>rank|default|trainer|worker)[ _:]?(?P<number>\d+)\]?[:|]?"  # torchrun
    r"|\[\d+,(?P<mpi>\d+)\]<std(?:err|out)>:?"  # mpirun --tag-output
    r"|(?P<srun>\d+):(?=\s)"  # srun --label
    r"|\((?P<ray>[\w.:-]+(?:[ _]\w+)* pid=\d+(?:, ip=[\d.]+)?)\)",  # Ray, vLLM
    re.IGNORECASE,
)
_NOISE = re.compile(
    r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?\]?"
    r"|\[?\d\d-\d\d \d\d:\d\d:\d\d\]?|\[?\d\d:\d\d:\d\d(?:[.,]\d+)?\]?"
    r"|\[?(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)\]?:?(?=\s)"
    r"|\[[\w./-]+\.py:\d+\]|[│|>]+|E(?=\s{2,})|-(?=\s)"
)


@dataclass
class _Stream:
    """The lines of one rank, without whitespace, prefixes and colours."""

    pieces: list[str] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    length: int = 0

    def add(self, words: str, line: int) -> None:
        self.pieces.append("".join(words.split()))
        self.starts.append(self.length)
        self.lines.append(line)
        self.length += len(self.pieces[-1])

    def line_at(self, offset: int) -> int:
        return self.lines[bisect_right(self.starts, offset) - 1]


def find_messages(text: str) -> list[OutOfMemory]:
    """Find every out-of-memory message of a log, in order; equal ones are one, counted.

    Args:
        text: the log, with any prefixes, broken lines and interleaved ranks.

    Raises:
        NoMessage: there is none, or none with numbers.
    """
    found: list[OutOfMemory] = []
    for rank, stream in _streams(text).items():
        joined = "".join(stream.pieces)
        for layout in _LAYOUTS:
            for match in layout.finditer(joined):
                found.append(
                    replace(
                        _message(match),
                        ranks=(rank,) if rank else (),
                        line=stream.line_at(match.start()),
                    )
                )
    if not found:
        raise NoMessage(_nothing_found(text))
    merged: dict[OutOfMemory, OutOfMemory] = {}  # equal: apart from where and how often
    for message in sorted(found, key=lambda each: each.line):
        first = merged.get(message)
        if first is None:
            merged[message] = message
            continue
        ranks = tuple(dict.fromkeys((*first.ranks, *message.ranks)))
        merged[message] = replace(first, times=first.times + 1, ranks=ranks)
    return list(merged.values())


def _nothing_found(text: str) -> str:
    if re.search(r"(CUDA|HIP)\s+error:\s+out\s+of\s+memory", text):
        return (
            "this is the driver's own error, 'CUDA error: out of memory', which has no numbers. "
            "Run nvidia-smi to see which processes use the GPU"
        )
    library = _LIBRARY_FAILED.search(text)
    if library:
        return (
            f"{library[0]}: a library's own request to the driver failed, outside PyTorch's "
            "allocator, so the message has no numbers. PyTorch and other processes had reserved "
            "nearly the whole GPU. Leave the library some memory: use a smaller batch, or call "
            "torch.cuda.set_per_process_memory_fraction(0.95) at the start of the program; "
            "nvidia-smi shows the other processes"
        )
    if "would exceed per_process_memory_fraction limit" in text:
        return (
            "PyTorch refused the request because of per_process_memory_fraction, without further "
            "numbers. Raise that fraction in PYTORCH_CUDA_ALLOC_CONF, or use less memory"
        )
    if "outofmemory" in "".join(text.split()).lower():
        return (
            "an out-of-memory error without PyTorch's numbers. Pass the whole message, from "
            "'CUDA out of memory. Tried to allocate' to the sizes in use"
        )
    return (
        "contains no out-of-memory message of PyTorch. Pass a log that has the line 'CUDA out of "
        "memory. Tried to allocate ...', or a memory snapshot"
    )


def _streams(text: str) -> dict[str, _Stream]:
    """Sort the lines by the rank that their prefix names.

    A line without a prefix continues the rank before it, as wrapped lines do.
    """
    streams: dict[str, _Stream] = {}
    rank = ""
    for number, line in enumerate(text.splitlines(), 1):
        label, words = _without_prefix(_ANSI.sub("", line))
        rank = label or rank
        streams.setdefault(rank, _Stream()).add(words, number)
    return streams


def _without_prefix(line: str) -> tuple[str, str]:
    rank, words = "", line.strip()
    while words:
        if label := _LABEL.match(words):
            number = label["number"] or label["mpi"] or label["srun"]
            rank = rank or (f"rank{number}" if number else label["ray"])
            words = words[label.end() :].lstrip()
        elif noise := _NOISE.match(words):
            words = words[noise.end() :].lstrip()
        else:
            break
    return rank, words.rstrip("│| ")


def _message(match: re.Match[str]) -> OutOfMemory:
    text = match.groupdict()

    def size(name: str) -> int | None:
        return parse_bytes(text[name]) if text.get(name) else None

    allocated_bytes, reserved_bytes = size("allocated"), size("reserved")
    cached_bytes = size("cached")
    if cached_bytes is not None and allocated_bytes is not None:
        reserved_bytes = allocated_bytes + cached_bytes
    total_bytes = size("total") or 0
    allowed_bytes = size("allowed")
    if allowed_bytes is not None and allowed_bytes > total_bytes:
        allowed_bytes = None  # cudaMallocAsync prints 2**64 - 1 where no limit is set
    processes = list(_PROCESS.finditer(text.get("processes") or ""))
    this = [parse_bytes(each["used"]) for each in processes if not each["number"]]
    return OutOfMemory(
        requested_bytes=size("requested") or 0,
        device=int(text["device"]),
        total_bytes=total_bytes,
        free_bytes=size("free") or 0,
        allocated_bytes=allocated_bytes,
        reserved_bytes=reserved_bytes,
        allowed_bytes=allowed_bytes,
        private_pools_bytes=size("private"),
        segment_reserve_bytes=size("segment"),
        this_process_bytes=this[0] if this else None,
        processes_bytes=tuple(
            (int(each["number"]), parse_bytes(each["used"])) for each in processes if each["number"]
        ),
        torch_version=_version(match.re, text),
    )


def _version(layout: re.Pattern[str], text: dict[str, str | None]) -> str:
    """Name the versions that write a layout, as far as the message tells."""
    if layout is _ASYNC:
        return "with backend cudaMallocAsync"
    if layout is _OLD:
        return "1.10 to 2.0" if text["split_hint"] else "1.4 to 2.0"
    if text["segment"]:
        return "2.15 or later"
    return "2.1" if text["word"] == "capacty" else "2.2 or later"


def reading(message: OutOfMemory, all_messages: Sequence[OutOfMemory] = ()) -> Reading:
    """Return what a message's numbers suggest.

    Args:
        message: one message.
        all_messages: every message of the same log, to see ranks that share a GPU.
    """
    requested_bytes, free_bytes = message.requested_bytes, message.free_bytes
    if requested_bytes > message.capacity_bytes + _ROUNDING_BYTES:
        is_limit = requested_bytes <= message.total_bytes
        return Reading.LIMIT if is_limit else Reading.LARGER_THAN_GPU
    if message.segment_reserve_bytes is not None:
        return Reading.SEGMENT_RESERVE
    if requested_bytes <= free_bytes:
        return Reading.FREE_SUFFICED if message.allowed_bytes is None else Reading.LIMIT
    # Of what would have been enough, the largest part is the likeliest cause.
    would_suffice = {
        size_bytes: cause
        for size_bytes, cause in (
            (message.private_pools_bytes or 0, Reading.PRIVATE_POOLS),
            (message.cached_bytes, Reading.FRAGMENTATION),
            (_foreign_bytes(message), Reading.OTHER_PROCESSES),
        )
        if free_bytes + size_bytes >= requested_bytes
    }
    cause = would_suffice[max(would_suffice)] if would_suffice else Reading.FULL
    if cause is Reading.OTHER_PROCESSES and _several_ranks(message, all_messages):
        return Reading.ANOTHER_RANK
    return cause


def _several_ranks(message: OutOfMemory, all_messages: Sequence[OutOfMemory]) -> bool:
    """Whether the log has this GPU's number from more than one rank."""
    ranks = {
        rank
        for each in all_messages
        if (each.device, each.total_bytes) == (message.device, message.total_bytes)
        for rank in each.ranks
    }
    return len(ranks | set(message.ranks)) > 1


def _foreign_bytes(message: OutOfMemory) -> int:
    """Return what surely belongs to other processes, not to a context of this one."""
    largest_context_bytes = max(gpu.context_bytes for gpu in catalogue.models())
    own_context_bytes = 0 if message.knows_own else largest_context_bytes
    # Less than a context is the driver's, or rounding, and not a process.
    foreign_bytes = message.others_bytes - own_context_bytes
    smallest_context_bytes = min(gpu.context_bytes for gpu in catalogue.models())
    return foreign_bytes if foreign_bytes >= smallest_context_bytes else 0


def explain_reading(message: OutOfMemory, suggested: Reading) -> str:
    """Word a reading with the message's numbers, and say what to do."""
    request = format_bytes(message.requested_bytes)
    missing = format_bytes(max(0, message.requested_bytes - message.free_bytes))
    match suggested:
        case Reading.LARGER_THAN_GPU:
            return (
                f"This one request of {request} is larger than the whole GPU. No allocator setting "
                "helps: make that tensor smaller, or split the operation that allocates it."
            )
        case Reading.LIMIT:
            return (
                f"The program may use only {format_bytes(message.capacity_bytes)} of "
                f"{format_bytes(message.total_bytes)}. Raise the limit set with "
                "set_per_process_memory_fraction, or use less memory."
            )
        case Reading.SEGMENT_RESERVE:
            return (
                f"The request of {request} does not fit into one expandable segment, which is "
                f"limited to {format_bytes(message.segment_reserve_bytes or 0)}. Raise or unset "
                "expandable_segments_reserve and expandable_segments_reserve_by_class in "
                "PYTORCH_CUDA_ALLOC_CONF."
            )
        case Reading.ANOTHER_RANK:
            return (
                f"About {format_bytes(_foreign_bytes(message))} belong to other processes, and "
                f"several ranks report GPU {message.device}. If they see the same GPUs, each must "
                "call torch.cuda.set_device(local_rank) before it creates a tensor."
            )
        case Reading.OTHER_PROCESSES:
            return (
                f"About {format_bytes(_foreign_bytes(message))} belong to other processes. Without "
                f"them, the request of {request} would have fitted. Run nvidia-smi on that machine "
                "and end processes that should not use the GPU."
            )
        case Reading.FRAGMENTATION:
            return (
                f"{missing} were missing, although PyTorch's cache had "
                f"{format_bytes(message.cached_bytes)}: no free block was large enough. Try "
                "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True (PyTorch 2.1 or later)."
            )
        case Reading.PRIVATE_POOLS:
            return (
                f"{format_bytes(message.private_pools_bytes or 0)} are free in private pools, "
                "which only their CUDA graphs can use. Capture fewer graphs, let them share a "
                "pool, or do not use graphs (torch.compile without mode='reduce-overhead')."
            )
        case Reading.FREE_SUFFICED:
            return (
                f"The request of {request} was smaller than what was free when the message was "
                "written. Another process may have freed memory in between, or the address space "
                "ran out."
            )
        case Reading.FULL:
            cached = (
                f" PyTorch's cache of {format_bytes(message.cached_bytes)} would not have been "
                "enough, so fragmentation is not the only cause."
                if message.cached_bytes
                else ""
            )
            return (
                f"The program's own memory fills the GPU; {missing} were missing.{cached} Use a "
                "smaller batch, activation checkpointing or lower precision."
            )


def parts(message: OutOfMemory) -> list[tuple[str, int, str]]:
    """Divide the GPU's memory: a character for the picture, bytes, and a name for each part."""
    named = []
    if message.allocated_bytes is not None:
        named.append(("#", message.allocated_bytes, "allocated by PyTorch"))
    if message.reserved_bytes is not None:
        named.append(("=", message.cached_bytes, "reserved by PyTorch, not allocated"))
    taken_bytes = sum(size_bytes for _, size_bytes, _ in named)
    rest = "other processes and the driver"
    if message.knows_own:
        named.append(
            (
                "+",
                max(0, message.own_bytes - taken_bytes),
                "CUDA context and other memory of this process",
            )
        )
        rest_bytes = message.others_bytes
    else:
        rest_bytes = max(0, message.total_bytes - message.free_bytes - taken_bytes)
        rest = f"this process's CUDA context, {rest}"
        if message.reserved_bytes is None:
            rest = f"PyTorch's cache, {rest}"
    return [*named, ("x", rest_bytes, rest), (".", message.free_bytes, "free")]


def picture(message: OutOfMemory) -> Iterator[str]:
    """Draw a message's numbers: one bar for the GPU, one for the request in the same scale."""
    shown = parts(message)
    # The parts are rounded, so that their sum need not be the total.
    whole_bytes = max(message.total_bytes, sum(size_bytes for _, size_bytes, _ in shown), 1)
    bar, until_bytes = "", 0
    for mark, size_bytes, _ in shown:
        until_bytes += size_bytes
        bar += mark * (until_bytes * _BAR // whole_bytes - len(bar))
    bar = bar.ljust(_BAR, ".")
    length = -(-message.requested_bytes * _BAR // whole_bytes)
    asked = ">" * min(length, _BAR) + ("..." if length > _BAR else "")
    yield f"  [{bar}] {format_bytes(message.total_bytes)}"
    yield f"   {asked}"
    rows = [
        *((mark, format_bytes(size_bytes), name) for mark, size_bytes, name in shown),
        (">", format_bytes(message.requested_bytes), "requested"),
    ]
    width = max(len(size) for _, size, _ in rows)
    for mark, size, name in rows:
        yield f"    {mark}  {size.rjust(width)}  {name}"
    if message.private_pools_bytes:
        yield (
            f"       {format_bytes(message.private_pools_bytes)} of what is allocated is free, but "
            "only for private pools (CUDA graphs)"
        )
    for number, used_bytes in message.processes_bytes:
        yield f"       process {number} has {format_bytes(used_bytes)} in all"


SNAPSHOT_LINES = (
    "torch.cuda.memory._record_memory_history()",
    'def dump(*_): torch.cuda.memory._dump_snapshot("snapshot.pickle")',
    "torch._C._cuda_attach_out_of_memory_observer(dump)",
)
"""What a program needs at its beginning to write a snapshot when it runs out of memory."""


def as_text(messages: Sequence[OutOfMemory], path: str) -> str:
    """Show the messages of one log: pictures, readings, and how to get a snapshot."""
    count = (
        "1 out-of-memory message"
        if len(messages) == 1
        else (f"{len(messages)} different out-of-memory messages")
    )
    lines = [f"{path}: {count}"]
    for message in messages:
        who = f"{', '.join(message.ranks)}: " if message.ranks else ""
        often = f", {message.times} times" if message.times > 1 else ""
        suggested = reading(message, messages)
        lines += [
            "",
            f"{who}GPU {message.device}, line {message.line}{often} "
            f"(PyTorch {message.torch_version})",
            *picture(message),
            f"  Likely: {suggested}.",
            f"  {explain_reading(message, suggested)}",
        ]
    lines += [
        "",
        "The message does not say which lines allocated the memory. To find out, record a memory "
        "snapshot: add these lines before",
        "you create the model (PyTorch 2.1 or later; with several ranks, one file name per rank), "
        "and run again:",
        "",
        *(f"    {line}" for line in SNAPSHOT_LINES),
        "",
        "Then run: vramlab explain snapshot.pickle",
    ]
    return "\n".join(lines)
