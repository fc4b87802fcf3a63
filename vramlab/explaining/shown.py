"""The explanation of a snapshot as text for a terminal, and as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from vramlab import catalogue
from vramlab.explaining.categories import NO_LINE, OLDER_LINE, Category
from vramlab.explaining.whatif import MOST_EVENTS_SEARCHED
from vramlab.table import Table
from vramlab.units import GIB, MIB, format_bytes

if TYPE_CHECKING:
    from vramlab.explaining.explanation import Explanation, GPUExplanation, Share
    from vramlab.explaining.whatif import Outcome

LINES_SHOWN = 8
LARGEST_LINES = 3
"""Left out together, to see what the rest needs."""

_IMBALANCED = 1.1
_WORTH_NAMING = 0.05
"""A share of what is allocated."""
_NEARLY_EQUAL = 1.02
_ANY_GPU_BYTES = 4 * GIB
"""Every GPU in use has more; to name the smallest one would help no one."""


def as_text(explanation: Explanation) -> str:
    """Return the report for a terminal."""
    return "\n".join(f"{part}" for part in _report(explanation)) + "\n"


def as_html(explanation: Explanation) -> str:
    """Return the report as a piece of HTML: its tables as tables, the rest as text."""
    parts: list[str] = []
    lines: list[str] = []
    for part in (*_report(explanation), None):
        if isinstance(part, str):
            lines.append(part)
            continue
        text = "\n".join(lines).strip("\n")
        if text:
            parts.append(
                f'<p style="white-space: pre-wrap; overflow-wrap: anywhere">{escape(text)}</p>'
            )
        lines.clear()
        if part is not None:
            parts.append(part._repr_html_())
    return "\n".join(parts)


def imbalance(gpus: Sequence[tuple[str, GPUExplanation]]) -> str:
    """Show GPUs or ranks side by side, and how far the fullest is above the average."""
    return "\n".join(f"{part}" for part in _side_by_side(gpus))


def _report(explanation: Explanation) -> Iterator[str | Table]:
    if not explanation.gpus:
        yield f"{explanation.path}: no GPU memory was allocated"
    if len(explanation.gpus) > 1:
        yield from _side_by_side([(f"cuda:{gpu.device}", gpu) for gpu in explanation.gpus])
        yield ""
    for number, gpu in enumerate(sorted(explanation.gpus, key=lambda gpu: not gpu.failed_line)):
        if number:
            yield ""
        yield from _gpu(gpu)


def _side_by_side(gpus: Sequence[tuple[str, GPUExplanation]]) -> Iterator[str | Table]:
    name, unit = _unit(max(gpu.peak_reserved_bytes for _, gpu in gpus))
    has_failed = any(gpu.failed_line for _, gpu in gpus)
    rows = tuple(
        (
            who,
            f"{gpu.allocated_bytes / unit:.2f}",
            f"{gpu.peak_reserved_bytes / unit:.2f}",
            f"{gpu.retries}",
            *(["yes" if gpu.failed_line else "no"] if has_failed else []),
        )
        for who, gpu in gpus
    )
    header: tuple[str, ...] = ("GPU", "allocated", "peak reserved", "retries")
    if has_failed:
        header += ("ran out of memory",)
    yield Table(f"GPUs side by side ({name})", header, rows)
    sizes = [gpu.allocated_bytes for _, gpu in gpus if gpu.allocated_bytes]
    mean_bytes = sum(sizes) / len(sizes) if sizes else 0
    if mean_bytes and max(sizes) >= _IMBALANCED * mean_bytes:
        fullest, _ = max(gpus, key=lambda each: each[1].allocated_bytes)
        yield (
            f"{fullest} has {max(sizes) / mean_bytes:.1f} times the average: the work is not "
            "split evenly."
        )


def _unit(size_bytes: int) -> tuple[str, int]:
    """Choose the unit of a table by its largest number."""
    return ("GiB", GIB) if size_bytes >= GIB else ("MiB", MIB)


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / GIB:.2f} GiB" if size_bytes >= GIB // 10 else format_bytes(size_bytes)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _gpu(gpu: GPUExplanation) -> Iterator[str | Table]:
    yield from _without_events(gpu) if gpu.reserved_bytes and not gpu.outcomes else _headline(gpu)
    if not gpu.allocated_bytes:
        return
    name, unit = _unit(gpu.allocated_bytes)
    header: tuple[str, ...] = ("category", name, "blocks")
    moment = "at that moment" if gpu.outcomes else "in the end"
    if [share.name for share in gpu.categories] != [Category.UNKNOWN]:
        yield ""
        yield Table(f"Allocated {moment}", header, _rows(gpu.categories, unit))
    if [share.name for share in gpu.lines] not in ([OLDER_LINE], [NO_LINE]):
        yield ""
        lines = gpu.lines[:LINES_SHOWN]
        header = ("line", name, "blocks", "category")
        yield Table("Lines that allocated most", header, _rows(lines, unit, True))
    pins = [pin for pin in gpu.pins if pin.free_bytes > _WORTH_NAMING * gpu.reserved_bytes]
    for pin in pins[:LARGEST_LINES]:
        yield (
            f"Fragmentation: {_gib(pin.free_bytes)} are free in {pin.segments} segment"
            f"{'s' * (pin.segments != 1)} pinned by {_gib(pin.held_bytes)} from {pin.line}"
        )
    if gpu.outcomes:
        yield ""
        yield from _settings(gpu)
    if gpu.remedies:
        yield ""
        yield _tried_changes(gpu, name, unit)
    yield from _advice(gpu)


def _rows(
    shares: Iterable[Share], unit: int, with_category: bool = False
) -> tuple[tuple[str, ...], ...]:
    """Make the rows of what is large enough to be a number in this unit."""
    return tuple(
        (share.name, f"{share.size_bytes / unit:.2f}", f"{share.blocks}")
        + ((share.category,) if with_category else ())
        for share in shares
        if share.size_bytes / unit >= 0.005
    )


def _without_events(gpu: GPUExplanation) -> Iterator[str]:
    free_bytes = gpu.unused_bytes
    yield (
        f"cuda:{gpu.device}: no allocation was recorded, only what was there in the end: "
        f"{_gib(gpu.allocated_bytes)} allocated, {_gib(gpu.reserved_bytes)} reserved"
    )
    if free_bytes:
        yield (
            f"  {_gib(free_bytes)} ({free_bytes / gpu.reserved_bytes:.0%}) are reserved and "
            "unallocated"
        )
    yield (
        "  to see how it came to that, and what would help, call "
        "torch.cuda.memory._record_memory_history() at the start of the program"
    )


def _headline(gpu: GPUExplanation) -> Iterator[str]:
    where = f"event {gpu.moment} of {gpu.events}"
    if gpu.failed_line:
        yield f"cuda:{gpu.device} ran out of memory at {where}: {gpu.failed_line}"
        yield (
            f"  requested {_gib(gpu.request_bytes)}; allocated {_gib(gpu.allocated_bytes)}, "
            f"reserved {_gib(gpu.reserved_bytes)}, free on the GPU {_gib(gpu.free_bytes)}"
        )
        if gpu.is_limited:
            over_bytes = gpu.reserved_bytes + gpu.request_bytes
            yield (
                "  The GPU had enough: a limit refused the request, between "
                f"{_gib(gpu.capacity_bytes or 0)} and {_gib(over_bytes)} "
                "(torch.cuda.set_per_process_memory_fraction)"
            )
        else:
            yield f"  PyTorch could reserve {_gib(gpu.capacity_bytes or 0)}"
        free = "what the limit left" if gpu.is_limited else "what is free on the GPU"
        yield (
            f"  reserved but unallocated: {_gib(gpu.unused_bytes)}. "
            + (
                f"With {free}, that is enough for the request, but in pieces: this is "
                "fragmentation."
                if gpu.is_fragmented
                else f"Even with {free}, that is less than was requested: this is not "
                "fragmentation."
            )
        )
    elif not gpu.reserved_bytes:
        yield f"cuda:{gpu.device}: nothing was allocated"
    else:
        share = gpu.unused_bytes / gpu.reserved_bytes
        yield f"cuda:{gpu.device}: peak allocated memory at {where}: {_gib(gpu.allocated_bytes)}"
        yield (
            f"  reserved then: {_gib(gpu.reserved_bytes)}, of which {share:.0%} is unallocated; "
            f"peak reserved: {_gib(gpu.peak_reserved_bytes)}"
        )
    if gpu.retries:
        calls = "The trace has {} cudaMalloc and {} cudaFree".format(*gpu.driver_calls)
        yield (
            f"  PyTorch released its cache {_times(gpu.retries)} to serve a request "
            f"({_gib(gpu.released_bytes)} in total); each release waits for the GPU"
            + (f". {calls}" if any(gpu.driver_calls) else "")
        )
    if gpu.older_bytes:
        yield f"  {format_bytes(gpu.older_bytes)} were allocated before the trace began"


def _settings(gpu: GPUExplanation) -> Iterator[str | Table]:
    name, unit = _unit(max(outcome.reserved_bytes for outcome in gpu.outcomes))
    columns = {"setting": [_setting(gpu, outcome) for outcome in gpu.outcomes]}
    columns["peak reserved"] = [f"{each.reserved_bytes / unit:.2f}" for each in gpu.outcomes]
    legend = ["peak reserved: on a GPU with unlimited memory"]
    if all(each.smallest_bytes is not None for each in gpu.outcomes):
        until = " up to the request that failed" if gpu.failed_line else ""
        legend.append(f"least memory: smallest GPU memory that is enough{until}")
        columns["least memory"] = [
            f"{(each.smallest_bytes or 0) / unit:.2f}" for each in gpu.outcomes
        ]
    if gpu.capacity_bytes is not None:
        legend.append("retries: releases of the cache on this GPU; fits: on this GPU")
        columns["retries"] = [f"{each.retries}" for each in gpu.outcomes]
        columns["fits"] = ["yes" if each.is_enough else "no" for each in gpu.outcomes]
    caption = f"The same allocations replayed under other allocator settings ({name})"
    yield Table(caption, tuple(columns), tuple(zip(*columns.values(), strict=True)))
    yield "; ".join(legend)
    if "least memory" not in columns:
        yield (
            f"least memory is not searched, because the trace has {gpu.events:,} events; with "
            f"up to {MOST_EVENTS_SEARCHED:,}, it is"
        )
    if not gpu.is_replayed:
        yield (
            "The table is an estimate: a replay with the recorded setting does not reserve exactly "
            "what was recorded. The file does not say everything about the memory that was in use "
            "before the trace began, or about private pools."
        )


def _setting(gpu: GPUExplanation, outcome: Outcome) -> str:
    name = outcome.settings or "default"
    return f"{name} (recorded)" if outcome.settings == gpu.settings else name


def _tried_changes(gpu: GPUExplanation, name: str, unit: int) -> Table:
    header = ("change", f"frees {name}", "peak allocated then")
    with_request = gpu.allocated_bytes + gpu.request_bytes
    rows = (
        ("none", "0.00", f"{with_request / unit:.2f}"),
        *(
            (each.change, f"{each.freed_bytes / unit:.2f}", f"{each.peak_bytes / unit:.2f}")
            for each in gpu.remedies[:LINES_SHOWN]
        ),
    )
    until = ", with the request that failed" if gpu.failed_line else ""
    caption = f"Changes to the program, each tried alone on this trace{until}"
    return Table(caption, header, rows)


def _advice(gpu: GPUExplanation) -> Iterator[str]:
    tips = [*_leak_advice(gpu), *_setting_advice(gpu), *_program_advice(gpu)]
    if tips:
        yield ""
        yield "What would help"
        yield from (f"  - {tip}" for tip in tips)


def _leak_advice(gpu: GPUExplanation) -> Iterator[str]:
    found = [
        growth
        for growth in gpu.growing[:LARGEST_LINES]
        if growth.size_bytes >= _WORTH_NAMING * gpu.growing[0].size_bytes
    ]
    if found:
        lines = ", ".join(
            f"{growth.line} ({growth.blocks} blocks, {_gib(growth.size_bytes)})" for growth in found
        )
        yield (
            f"Possible leak: steps allocate and never free blocks at {lines}. If a list keeps "
            "them, or keeps a loss whose graph does, append loss.item() or tensor.detach().cpu()"
        )


def _setting_advice(gpu: GPUExplanation) -> Iterator[str]:
    searched = [outcome for outcome in gpu.outcomes if outcome.smallest_bytes is not None]
    recorded = next((each for each in gpu.outcomes if each.settings == gpu.settings), None)
    if recorded is None:
        return
    better = [each for each in gpu.outcomes if each.settings and _is_better(each, recorded)]
    if better:
        best = min(better, key=lambda each: (each.retries or 0, each.settings))
        what = (
            "avoids the out-of-memory error on this GPU"
            if gpu.failed_line
            else f"releases the cache {_times(best.retries or 0)}, not {recorded.retries}"
        )
        yield f'export PYTORCH_CUDA_ALLOC_CONF="{best.settings}" {what}'
        if "garbage_collection" in best.settings:
            yield (
                "garbage_collection_threshold takes effect with a memory limit only: call "
                "torch.cuda.set_per_process_memory_fraction(0.99)"
            )
    elif gpu.failed_line:
        yield "no allocator setting avoids the out-of-memory error on this GPU"
    yield from _less_memory(gpu, recorded, bool(better))
    is_leak = sum(each.size_bytes for each in gpu.growing) > gpu.allocated_bytes / 2
    if searched and not is_leak:  # no GPU has enough for a leak
        least = _best(searched)
        fitting = _smallest_gpu(least.smallest_bytes or 0)
        if fitting and (gpu.failed_line or gpu.peak_reserved_bytes >= _ANY_GPU_BYTES):
            enough = "passes this request" if gpu.failed_line else "has enough memory"
            yield (
                f"the smallest common GPU that {enough} is {fitting} "
                f"({_gib(least.smallest_bytes or 0)} with {least.settings or 'the defaults'})"
                + ("; what comes after it may need more" if gpu.failed_line else "")
            )


def _less_memory(gpu: GPUExplanation, recorded: Outcome, is_named: bool) -> Iterator[str]:
    """Name a setting that needs clearly less memory, though the recorded one did not fail."""
    now_bytes = recorded.smallest_bytes
    if now_bytes is None or is_named:
        return
    best = _best(each for each in gpu.outcomes if each.smallest_bytes is not None)
    if best.settings and (best.smallest_bytes or 0) < (1 - _WORTH_NAMING) * now_bytes:
        yield (
            f'export PYTORCH_CUDA_ALLOC_CONF="{best.settings}" needs '
            f"{_gib(best.smallest_bytes or 0)}, not {_gib(now_bytes)}"
        )


def _best(outcomes: Iterable[Outcome]) -> Outcome:
    """Choose what needs least. Of nearly equal settings, take the default or expandable segments.

    Those two depend least on the sizes of this trace.
    """
    found = list(outcomes)
    least_bytes = min(each.smallest_bytes or 0 for each in found)
    near = [each for each in found if (each.smallest_bytes or 0) <= _NEARLY_EQUAL * least_bytes]
    general = ("", "expandable_segments:True")
    return min(near, key=lambda each: (each.settings not in general, each.smallest_bytes or 0))


def _is_better(other: Outcome, recorded: Outcome) -> bool:
    """Whether another setting serves what the recorded one could not, or with fewer releases."""
    if not other.is_enough:
        return False
    return not recorded.is_enough or (other.retries or 0) < (recorded.retries or 0)


def _smallest_gpu(needed_bytes: int) -> str:
    fitting = [
        gpu for gpu in catalogue.common() if gpu.total_bytes - gpu.context_bytes >= needed_bytes
    ]
    if not fitting:
        return ""
    return min(fitting, key=lambda gpu: gpu.total_bytes).name


def _program_advice(gpu: GPUExplanation) -> Iterator[str]:
    if gpu.failed_line and gpu.capacity_bytes is not None:
        for remedy in gpu.remedies:
            left_bytes = gpu.capacity_bytes - remedy.peak_bytes
            if left_bytes >= 0:
                yield f"{remedy.change}: the request fits, with {_gib(left_bytes)} to spare"
    recorded = gpu.outcomes[0].smallest_bytes if gpu.outcomes else None
    if gpu.without_largest_bytes is None or recorded is None:
        return
    if gpu.without_largest_bytes < (1 - _WORTH_NAMING) * recorded:
        yield (
            f"without the blocks of {', '.join(gpu.largest_lines)}: "
            f"{_gib(gpu.without_largest_bytes)} would be enough"
        )
