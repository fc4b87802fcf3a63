"""A run's verdict in words: how the program ended, whether it fits, and what did not run.

Does not import torch.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator, Sequence

from vramlab.measure.timeline import Frame
from vramlab.report.summary import Fit, OutOfMemoryUse, Reason, StepCounts, Summary
from vramlab.source_files import shown_name
from vramlab.units import format_bytes

_OPTIONS = {
    "--steps": "Stopped after the requested number of training steps (--steps).",
    "--seconds": "Stopped after the requested time (--seconds).",
}

MOST_REASONS = 4
"""Reasons that are shown; JSON has them all."""

_UNTIL_THEN = "The numbers below cover the time until then."


def verdict(summary: Summary) -> Iterator[str]:
    """Return the lines about how the program ended and whether it fits."""
    used = [device for device in summary.devices if device.context_bytes]
    yield from _ending(summary)
    if summary.child_count:
        started = _plural(summary.child_count, "process", "es")
        verb = "prints its own report" if summary.child_count == 1 else "print their own reports"
        yield f"It started {started} that {verb}."
    elif not used:
        yield "The program used no GPU: it put nothing on a cuda device."
    if used and summary.ended_out_of_memory:
        last = summary.out_of_memory[-1]
        at = _at(last, summary.folder)
        if summary.outcome is Fit.MAY_NOT_FIT:
            reasons = tuple(each for each in summary.reasons if each.at_most)
            yield f"may NOT fit: out of memory on cuda:{last.device}{at}{because(reasons)}"
        else:
            yield f"does NOT fit: out of memory on cuda:{last.device}{at}"
        yield f"  {_without_advice(summary.error or '')}"
    for failed in summary.out_of_memory:
        count = failed.count - (1 if summary.ended_out_of_memory else 0)
        if count:
            yield (
                f"Out of memory {times(count)} on cuda:{failed.device}, but the program caught "
                f"it; last{_at(failed, summary.folder)}."
            )
    if summary.ended_out_of_memory:
        return
    for device in used:
        share = device.needed_bytes / device.total_bytes
        size = f"{format_bytes(device.needed_bytes)} of {format_bytes(device.total_bytes)}"
        if summary.outcome in (Fit.FITS, Fit.CUT_SHORT):
            words = "fits" if summary.fits else "until then"
            yield f"{words}: cuda:{device.index} needs {size} ({share:.1%}) at the peak"
        else:
            why = because(summary.reasons if device is used[0] else summary.reasons[:1])
            at = f"({share:.1%}) on cuda:{device.index} at the peak"
            yield f"{summary.outcome} {size} {at}{why}"
    if used and summary.is_cut_short:
        yield from not_seen(summary.counts)


def _ending(summary: Summary) -> Iterator[str]:
    if summary.ended_out_of_memory:
        return
    if summary.error == "KeyboardInterrupt":
        yield f"The program was interrupted. {_UNTIL_THEN}"
    elif summary.error is not None:
        yield f"The program failed: {_first_line(summary.error)}"
        if summary.hint is not None:
            yield summary.hint
        if summary.read_of_failure is not None:
            yield (
                "The cause is a value read from the GPU, which is not computed, at "
                f"{summary.read_of_failure}"
            )
            if summary.engine == "portable":
                yield "Try --on-value zero (reads return 0), or --on-value error (reads raise)."
        yield _UNTIL_THEN
    elif summary.stopped_by in _OPTIONS:
        yield _OPTIONS[summary.stopped_by]
    elif summary.stopped_by == "os._exit":
        yield f"The program called os._exit({summary.status})."
    elif summary.stopped_by is not None:
        yield f"The program was stopped by {summary.stopped_by}."
        yield _UNTIL_THEN
    elif summary.status:
        yield f"The program ended with exit status {summary.status}."
    if summary.stuck_at is not None:
        yield f"It did not react and was killed. It was at {summary.stuck_at}"


def because(reasons: Sequence[Reason]) -> str:
    """Return why a peak is uncertain; '' without a reason."""
    if not reasons:
        return ""
    shown = [reason.text for reason in reasons[:MOST_REASONS]]
    if more := len(reasons) - len(shown):
        shown.append(f"of {_plural(more, 'more reason')} (see --json)")
    return "".join((", because ", "\n  and because ".join(shown)))


def not_seen(counts: StepCounts) -> Iterator[str]:
    """Return which parts of training did not run before the program was stopped."""
    if not counts.backward_passes:
        yield (
            "No backward pass ran: gradients, optimizer states and the memory of the backward pass "
            "are not counted."
        )
    elif counts.has_optimizer and not counts.optimizer_steps:
        yield "No optimizer step ran: optimizer states are not counted."
    elif counts.optimizer_steps == 1 and counts.has_states:
        yield (
            "Only one optimizer step ran. The second may need more memory, because optimizer "
            "states exist during its forward and backward pass. Try --steps 2."
        )


def steps_done(counts: StepCounts) -> str:
    """Return how far training got, in a few words."""
    if counts.optimizer_steps:
        return _plural(counts.optimizer_steps, "optimizer step")
    if counts.updates_by_hand:
        return _plural(counts.updates_by_hand, "training step")
    if counts.backward_passes:
        return f"no optimizer step yet, {_plural(counts.backward_passes, 'backward pass', 'es')}"
    passes = _plural(counts.forward_passes, "forward pass", "es")
    if counts.evaluations == counts.forward_passes > 0:
        return f"no backward pass yet, {passes} without gradients (evaluation)"
    return f"no backward pass yet, {passes}" if counts.forward_passes else "no forward pass yet"


def _plural(count: int, noun: str, ending: str = "s") -> str:
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def _at(failed: OutOfMemoryUse, folder: str) -> str:
    if failed.line is None:
        return ""
    where = " in the backward pass of" if failed.in_backward else " at"
    return f"{where} {place(failed.line, folder)}: {source(failed.line)}".rstrip(": ")


def times(count: int) -> str:
    """Return `once` or `3 times`."""
    return "once" if count == 1 else f"{count:,} times"


def place(frame: Frame, folder: str) -> str:
    """Return the place of a line: `train.py:35 Network.forward`."""
    name = shown_name(frame.filename, folder)
    return f"{name}:{frame.line} {frame.function.rpartition('.<locals>.')[2]}"


def source(frame: Frame) -> str:
    """Return the source of a line."""
    return linecache.getline(frame.filename, frame.line).strip()


def _without_advice(message: str) -> str:
    """Leave out what PyTorch advises about fragmentation; the traceback above has it."""
    return message.partition(" If reserved but unallocated memory is large")[0]


def _first_line(text: str) -> str:
    return text.splitlines()[0] if text else text
