"""The process of one entry: attach the GPU, measure, write what came of it to a file.

The processes are forked from a server that has imported everything and used no CUDA: each entry
finds a fresh context, and none waits for imports.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vramlab.errors import NeedsMoreGPUs
from vramlab.recordings.store import SKIPPED

if TYPE_CHECKING:
    from vramlab.recordings.measuring import Stacks

PRELOADED = ("torch", "vramlab.recordings.preload")
"""Modules that the server imports before it forks."""

MACHINE = "machine"
"""Asked for instead of an entry: what the machine is."""


@dataclass(frozen=True)
class Target:
    """Which GPU to measure."""

    virtual: str | None = None
    """Name of a virtual GPU; None: the real one."""
    torch_version: str | None = None
    """What a virtual GPU stands for; None: the installed one."""
    stacks: Stacks = "all"
    """Frames of the memory history, see `measuring.Stacks`."""


def run(entry: str, target: Target, answer: str, log: str) -> None:
    """Measure `entry`, and write a JSON object to the file `answer`; what is printed goes to `log`.

    The object has `error` (and `bad_fork`, if a fresh interpreter is needed, or `status`, if it is
    not a failure), or else `machine`, or
    `entry` with `trace` and `statistics`.
    """
    _redirect(log)
    try:
        result = _answer(entry, target)
    except NeedsMoreGPUs as error:
        result = {"error": str(error), "status": SKIPPED}
    except Exception as error:
        traceback.print_exc()
        result = {"error": f"{type(error).__name__}: {error}"}
    temporary = Path(f"{answer}.part")
    temporary.write_text(json.dumps(result), encoding="utf-8")
    temporary.rename(answer)


def _answer(entry: str, target: Target) -> dict[str, Any]:
    import vramlab
    from vramlab.gpu.torch_internals import is_in_bad_fork
    from vramlab.native.choice import is_inside
    from vramlab.native.values import KnownValues
    from vramlab.recordings.machine import describe_machine
    from vramlab.recordings.measuring import measure

    if is_in_bad_fork():
        return {"error": "CUDA was used before this process was forked", "bad_fork": True}
    if target.virtual is not None:
        gpu: Any = vramlab.VirtualGPU(target.virtual, torch_version=target.torch_version)
    else:
        gpu = KnownValues() if is_inside() else nullcontext()
    with gpu:
        if entry == MACHINE:
            return {"machine": describe_machine()}
        return as_data(measure(entry, target.stacks))


def as_data(measured: Any) -> dict[str, Any]:
    """Return a `Measured` as `entry`, `trace` and `statistics`."""
    from vramlab.recordings.measuring import unique_names
    from vramlab.recordings.store import OK, RecordedEntry, RecordedStage

    stages = tuple(
        RecordedStage(
            name,
            stage.allocated_after_bytes,
            stage.peak_allocated_bytes,
            stage.reserved_after_bytes,
            stage.peak_reserved_bytes,
            stage.device_used_after_bytes,
            stage.error,
        )
        for name, stage in zip(unique_names(measured.stages), measured.stages, strict=True)
    )
    entry = RecordedEntry(
        OK,
        round(measured.seconds, 3),
        stages,
        outcome=measured.outcome,
        moments=None if measured.moments is None else tuple(measured.moments),
        trace_error=measured.trace_error,
    )
    keys = list(measured.statistics[-1]) if measured.statistics else []
    return {
        "entry": entry.to_dict(),
        "trace": measured.trace.to_dict(),
        "statistics": {
            "keys": keys,
            "stages": [[stats.get(key, 0) for key in keys] for stats in measured.statistics],
        },
    }


def _redirect(log: str) -> None:
    """Let everything that this process prints, C++ code included, go to a file."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(handle, 1)
    os.dup2(handle, 2)
    os.close(handle)
