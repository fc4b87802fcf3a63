"""On which GPUs a program fits, by as few runs as it takes.

A run depends on the figures of its GPU that it asked for: see
`vramlab.report.evidence.asked_facts`. Where another GPU is equal in these, and only its memory
differs, the run is not made again:

- What was reserved at most, and the context, are within its memory: it fits, with the same peak.
- What was allocated at most, and the context, are beyond it: it does not fit.
- Between the two, PyTorch would give cached memory back and may go on: it is run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from vramlab.catalogue import GPUModel
from vramlab.report.evidence.asked_facts import SIZE
from vramlab.report.summary import Fit
from vramlab.sizing.runs import RunOutcome, RunProgram, UnusableRun

_SIZES = frozenset({SIZE, "nvml_total_bytes"})


@dataclass(frozen=True)
class GPUOutcome:
    """A program on one GPU."""

    gpu: GPUModel
    """Which."""
    outcome: RunOutcome
    """What was found."""
    same_as: str | None = None
    """The GPU on which it ran in its place; None: it ran on this one."""


def try_gpus(
    run: RunProgram,
    program: Sequence[str],
    gpus: Iterable[GPUModel],
    tell: Callable[[str], None] = lambda _: None,
) -> list[GPUOutcome]:
    """Find out on which GPUs a program fits; the smallest GPU first.

    Ctrl-C ends it with those that are known by then.

    Args:
        run: runs the program.
        program: with its arguments.
        gpus: which.
        tell: called with what is under way.

    Raises:
        UnusableRun: the run on the largest GPU says nothing about sizes.
    """
    tried: list[GPUOutcome] = []
    by_size = sorted(gpus, key=lambda gpu: gpu.total_bytes, reverse=True)
    for gpu in by_size:
        known = next(filter(None, (_known_from(each, gpu) for each in tried)), None)
        if known is None:
            tell(f"{len(tried) + 1} of {len(by_size)}, {gpu.name}")
            try:
                known = GPUOutcome(gpu, run(gpu, program))
            except UnusableRun as error:
                if not tried:
                    raise
                known = GPUOutcome(gpu, RunOutcome(gpu.name, None, 0, 0, 0, None, str(error)))
            except KeyboardInterrupt:
                if not tried:
                    raise
                break
        tried.append(known)
    return tried[::-1]


def smallest_that_fits(tried: Sequence[GPUOutcome]) -> GPUOutcome | None:
    """Return the GPU with the least memory among those on which it fits."""
    fitting = [each for each in tried if each.outcome.fits]
    return min(fitting, key=lambda each: each.gpu.total_bytes, default=None)


def _known_from(other: GPUOutcome, gpu: GPUModel) -> GPUOutcome | None:
    """Return from a run on another GPU how it would end on this one; None: it has to be run."""
    found = other.outcome
    if other.same_as is not None or found.gpu_facts is None or found.gpu_facts & _SIZES:
        return None
    if any(getattr(gpu, name) != getattr(other.gpu, name) for name in found.gpu_facts):
        return None
    if found.fits is None or gpu.total_bytes > other.gpu.total_bytes:
        return None
    there = replace(found, gpu=gpu.name, context_bytes=gpu.context_bytes)
    if found.fits and there.needed_bytes <= gpu.total_bytes:
        return GPUOutcome(gpu, there, other.gpu.name)
    least_bytes = found.peak_allocated_bytes + gpu.context_bytes
    if not found.fits or least_bytes > gpu.total_bytes:
        may_be_less = found.unsure in (Fit.AT_MOST, Fit.ABOUT, Fit.MAY_NOT_FIT)
        unsure = Fit.MAY_NOT_FIT if may_be_less else None
        return GPUOutcome(gpu, replace(there, fits=False, unsure=unsure), other.gpu.name)
    return None
