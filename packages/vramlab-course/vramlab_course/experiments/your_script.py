"""A learner's own script under `vramlab run`, or GPT-2 small, as the lessons in turn change it.

    run = run_script("05", "train.py --batch-size 4", gpu="RTX-3090")
    run.bytes_by_category["activations"]

The bundled program is `vramlab_course.programs.minigpt`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramlab.errors import VramlabError
from vramlab.report.summary import Fit
from vramlab.sizing.runs import RunCommand, UnusableRun, report_of
from vramlab.sizing.server import RunServer

FIRST_LESSON = "05"
STEPS, SECONDS = 3, 120
"""A learner's own script is stopped after so many training steps, or seconds."""
BUNDLED = "-m vramlab_course.programs.minigpt"

Change = tuple[str, str, dict[str, str]]

_CHANGES: tuple[Change, ...] = (
    ("05", "as written", {}),
    ("09", "attention by a fused kernel", {"--fused-attention": ""}),
    ("10", "2 texts instead of 8", {"--batch-size": "2"}),
    ("13", "8 texts again, 2 at a time", {"--batch-size": "8", "--accumulate": "4"}),
    ("14", "layers recomputed, AdamW fused", {"--checkpoint": "", "--optimizer": "fused"}),
    ("15", "products in bfloat16", {"--autocast": ""}),
    ("16", "Adafactor", {"--optimizer": "adafactor"}),
    ("17", "saved tensors on the host", {"--offload": ""}),
    ("24", "adapters of rank 8, all else frozen", {"--lora": "8"}),
    ("25", "logits in 8 pieces", {"--loss-pieces": "8"}),
)
"""Lesson, what it changes in the bundled program, and by which options. A later value wins."""

_MOST_LINES = 3


class UnusableScript(VramlabError):
    """A script could not be run, or used no GPU; the message says why."""


@dataclass(frozen=True)
class ScriptRun:
    """The peak of a script on a virtual GPU.

    Attributes:
        lesson: in which it ran, such as '05'.
        change: what it is called in a picture.
        command: its words after `vramlab run`, without the GPU.
        gpu: name in the catalogue.
        fits: whether the memory was sufficient.
        needed_bytes: reserved memory and the CUDA context, at their highest.
        total_bytes: memory of the GPU.
        bytes_by_category: at the peak; if memory ran out, at that moment.
        lines: (bytes at that moment, file and line, what stands there), most bytes first.
    """

    lesson: str
    change: str
    command: str
    gpu: str
    fits: bool
    needed_bytes: int
    total_bytes: int
    bytes_by_category: dict[str, int]
    lines: tuple[tuple[int, str, str], ...] = ()

    @property
    def peak_bytes(self) -> int:
        """Sum of all categories."""
        return sum(self.bytes_by_category.values())


def run_script(lesson: str, command: str, *, gpu: str) -> ScriptRun:
    """Run a learner's script for some training steps.

    Args:
        lesson: in which it runs, such as '05'.
        command: script and its options, such as 'train.py --batch-size 4', or `-m` and a module.
        gpu: from the catalogue, such as 'RTX-3090'.

    Raises:
        UnusableScript: There is no such file, the script failed, or it used no GPU.
    """
    words = shlex.split(command)
    if not words:
        raise UnusableScript("no script: give a path such as 'train.py --batch-size 4'")
    if words[0] != "-m" and not os.path.isfile(words[0]):
        raise UnusableScript(
            f"no file {words[0]!r} in {os.getcwd()}: give the path of your script from this folder"
        )
    limits = ["--steps", str(STEPS), "--seconds", str(SECONDS)]
    name = command if words[0] == "-m" else shlex.join([Path(words[0]).name, *words[1:]])
    return _run(lesson, name, command, ["--gpu", gpu, *limits], words)


def run_bundled(lesson: str, *, gpu: str) -> list[ScriptRun]:
    """Run the bundled program as first written, before a lesson's change, and with it.

    Args:
        lesson: such as '13'.
        gpu: from the catalogue.
    """
    changes = [change for change in _CHANGES if change[0] <= lesson]
    shown = [number for number in range(len(changes)) if number in (0, *range(len(changes))[-2:])]
    with ExitStack() as stack:
        run: RunCommand | None = None
        if hasattr(os, "fork"):
            run = stack.enter_context(RunServer()).run
        return [_run_changed(changes[: number + 1], gpu, run) for number in shown]


def _run_changed(changes: Sequence[Change], gpu: str, run: RunCommand | None) -> ScriptRun:
    lesson, change, _ = changes[-1]
    settings = {name: value for _, _, changed in changes for name, value in changed.items()}
    command = " ".join([BUNDLED, *(f"{name} {value}".strip() for name, value in settings.items())])
    options = ["--gpu", gpu, "--engine", "portable"]
    return _run(lesson, change, command, options, command.split(), run)


def _run(
    lesson: str,
    change: str,
    command: str,
    options: Sequence[str],
    program: Sequence[str],
    run: RunCommand | None = None,
) -> ScriptRun:
    try:
        report = report_of(options, program, run)
    except UnusableRun as error:
        raise UnusableScript(f"'{command}': {error}") from error
    device = max(report["devices"], key=lambda device: int(device["needed_bytes"]), default=None)
    had_room = Fit(report["outcome"]).had_room
    if had_room is None:
        why = "\n".join(filter(None, (report["error"], report["hint"])))
        raise UnusableScript(f"'{command}' failed: {why or 'it gave no error'}")
    if not device or not device["category_bytes"]:
        raise UnusableScript(f"'{command}' put nothing on a GPU: move its model to 'cuda'")
    return ScriptRun(
        lesson,
        change,
        command,
        report["gpu"],
        had_room,
        device["needed_bytes"],
        device["total_bytes"],
        device["category_bytes"],
        tuple(map(_line, device["lines"][:_MOST_LINES])),
    )


def _line(use: dict[str, Any]) -> tuple[int, str, str]:
    line = use["caller"] or use["line"]
    where = f"{Path(line['filename']).name}:{line['line']}" if line else "elsewhere"
    return use["size_bytes"], where, use["text"] if line == use["line"] else ""
