"""A run's summary to be read in a terminal. Knows nothing of torch."""

from __future__ import annotations

import linecache
from collections.abc import Iterator

from vramlab.measure.categories import Category
from vramlab.measure.timeline import Frame
from vramlab.native.report import as_lines
from vramlab.report.summary import DeviceUse, LineUse, OutOfMemoryUse, Summary
from vramlab.source_files import shown_name
from vramlab.units import MIB, format_bytes

MOST_LINES = 10
"""How many lines of the program are shown; JSON has them all."""

MOST_OPS = 6
"""How many ops that were counted by their outputs are named; JSON has them all."""

_WORDS = {
    Category.INPUTS: "inputs and other data of the program",
    Category.ACTIVATIONS: "activations, kept for the backward pass",
    Category.TEMPORARIES: "temporaries, and gradients of activations",
    Category.WORKSPACES: "workspaces of cuBLAS and other libraries",
}


def as_text(summary: Summary) -> str:
    """Tell whether the program fits, where the peak came from, and what to know of the numbers."""
    return "\n".join(_paragraphs(summary))


def _paragraphs(summary: Summary) -> Iterator[str]:
    times = f"{summary.gpu_count} x " if summary.gpu_count > 1 else ""
    total = format_bytes(summary.devices[0].total_bytes)
    yield f"vramlab run: {summary.program}"
    rules = "rules of " if summary.engine == "portable" else "the native engine: "
    yield (
        f"on {times}{summary.gpu} (virtual, {total}), {rules}PyTorch {summary.torch_version}, "
        f"{summary.seconds:.1f} s"
    )
    if summary.why:
        yield f"{summary.engine} engine: {summary.why}"
    yield ""
    yield from _verdict(summary)
    used = [device for device in summary.devices if device.context_bytes]
    for device in used:
        yield ""
        yield from _where_the_bytes_are(device)
        yield ""
        yield from _lines(device, summary.folder)
    yield from _values(summary)
    yield from _unreviewed(summary)
    if calls := as_lines(summary.substitute_calls):
        yield from ("", *calls)


def _verdict(summary: Summary) -> Iterator[str]:
    used = [device for device in summary.devices if device.context_bytes]
    if summary.error == "KeyboardInterrupt":
        yield "The program was interrupted. What follows was measured until then."
    elif summary.error is not None and not summary.ended_out_of_memory:
        yield f"The program failed: {_first_line(summary.error)}"
        yield "What follows was measured until then."
    elif summary.status and not summary.ended_out_of_memory:
        yield f"The program ended with exit status {summary.status}."
    if summary.stopped:
        yield "The program was stopped after as many optimizer steps as were asked for."
    if not used:
        yield "The program used no GPU: nothing was put on a cuda device."
    elif summary.ended_out_of_memory:
        last = summary.out_of_memory[-1]
        yield f"does NOT fit: out of memory on cuda:{last.device}{_at(last, summary.folder)}"
        yield f"  {summary.error}"
    for failed in summary.out_of_memory:
        times = failed.count - (1 if summary.ended_out_of_memory else 0)
        if times:
            yield (
                f"Out of memory {_times(times)} on cuda:{failed.device}, and the program went on; "
                f"last{_at(failed, summary.folder)}."
            )
    if summary.ended_out_of_memory:
        return
    for device in used:
        share = device.needed_bytes / device.total_bytes
        verdict = "fits" if summary.fits else "until then"
        yield (
            f"{verdict}: cuda:{device.index} needs {format_bytes(device.needed_bytes)} of "
            f"{format_bytes(device.total_bytes)} ({share:.1%}) at the peak"
        )


def _at(failed: OutOfMemoryUse, folder: str) -> str:
    if failed.line is None:
        return ""
    where = " in the backward pass of" if failed.in_backward else " at"
    return f"{where} {place(failed.line, folder)}: {source(failed.line)}".rstrip(": ")


def _where_the_bytes_are(device: DeviceUse) -> Iterator[str]:
    moment = "when memory ran out" if device.at_out_of_memory else "at the peak"
    rows: list[tuple[str, int]] = [
        (_WORDS.get(category, str(category)), size_bytes)
        for category, size_bytes in device.category_bytes.items()
    ]
    reserved_bytes = (
        device.reserved_bytes if device.at_out_of_memory else device.peak_reserved_bytes
    )
    estimated = ", estimated" if device.context_is_estimated else ""
    rows += [
        ("allocated", device.allocated_bytes),
        ("cache: reserved by PyTorch, not allocated", reserved_bytes - device.allocated_bytes),
        (f"CUDA context{estimated}", device.context_bytes),
        ("needed on the GPU", reserved_bytes + device.context_bytes),
    ]
    title = f"Memory of cuda:{device.index} {moment}"
    yield f"{title:<46}{'MiB':>12}{'bytes':>18}"
    for name, size_bytes in rows:
        total = name in ("allocated", "needed on the GPU")
        yield f"{'' if total else '  '}{name:<{46 if total else 44}}{_sizes(size_bytes)}"


def _sizes(size_bytes: int) -> str:
    return f"{size_bytes / MIB:>12,.2f}{size_bytes:>18,}"


def _lines(device: DeviceUse, folder: str) -> Iterator[str]:
    shown = device.lines[:MOST_LINES]
    width = max([44, *(len(_where(use, folder)) for use in shown)])
    yield f"{'Lines that hold most of it':<{width + 2}}{'MiB':>12}{'blocks':>10}"
    for use in shown:
        yield from _line(use, width, folder)
    rest = device.lines[MOST_LINES:]
    if rest:
        size_bytes = sum(use.size_bytes for use in rest)
        blocks = sum(use.block_count for use in rest)
        yield f"  {f'{len(rest)} more lines':<{width}}{size_bytes / MIB:>12,.2f}{blocks:>10,}"


def _where(use: LineUse, folder: str) -> str:
    return "(PyTorch itself)" if use.line is None else place(use.line, folder)


def _line(use: LineUse, width: int, folder: str) -> Iterator[str]:
    what = ", ".join(str(category) for category in list(use.category_bytes)[:2])
    where = f"  {_where(use, folder):<{width}}"
    yield f"{where}{use.size_bytes / MIB:>12,.2f}{use.block_count:>10,}  {what}"
    if use.line is not None and (code := source(use.line)):
        yield f"      {code}"
    if use.caller is not None:
        yield f"      called from {place(use.caller, folder)}"


def _values(summary: Summary) -> Iterator[str]:
    if not summary.value_reads:
        return
    yield ""
    yield "Values were read that a virtual GPU does not have; nan (or 0) was answered:"
    for line, reads in summary.value_reads.items():
        how = ", ".join(f"{what} {_times(times)}" for what, times in reads.items())
        yield f"  {line}"
        yield f"      {how}"


def _unreviewed(summary: Summary) -> Iterator[str]:
    if not summary.counted_by_outputs:
        return
    ordered = sorted(summary.counted_by_outputs.items(), key=lambda item: -item[1])
    named = [f"{name} ({_times(times)})" for name, times in ordered[:MOST_OPS]]
    more = f" and {len(ordered) - MOST_OPS} more" if len(ordered) > MOST_OPS else ""
    yield ""
    yield "Ops whose CUDA kernels have not been read yet; only their outputs are counted:"
    yield f"  {', '.join(named)}{more}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def place(frame: Frame, folder: str) -> str:
    """Name a line, as `train.py:12 main`, its file from `folder` on."""
    name = shown_name(frame.filename, folder)
    return f"{name}:{frame.line} {frame.function.rpartition('.<locals>.')[2]}"


def source(frame: Frame) -> str:
    """Read the text of a line; empty where there is none."""
    return linecache.getline(frame.filename, frame.line).strip()


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else text
