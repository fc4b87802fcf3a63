"""One run of a program on a virtual GPU, in a process of its own, as data."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramlab.catalogue import GPUModel
from vramlab.errors import VramlabError

_LAST_LINES = 12
"""How much of what a program that failed has said is shown."""


class UnusableRun(VramlabError):
    """A run that says nothing about sizes; the message says why."""


@dataclass(frozen=True)
class RunOutcome:
    """What a run found."""

    gpu: str
    """Name in the catalogue."""
    fits: bool | None
    """Whether there was memory enough; None: the program failed otherwise."""
    peak_allocated_bytes: int
    """Of the GPU that needed most; when memory ran out, until then."""
    peak_reserved_bytes: int
    """Likewise."""
    context_bytes: int
    """The CUDA context of a GPU."""
    gpu_facts: frozenset[str] | None
    """Which figures of the GPU it depended on; None: nobody knows."""
    problem: str = ""
    """How it failed or ran out of memory, in a line."""
    seconds: float = 0.0
    """How long it took here."""

    @property
    def needed_bytes(self) -> int:
        """What the driver counts: reserved memory and context."""
        return self.peak_reserved_bytes + self.context_bytes

    @classmethod
    def of(cls, report: dict[str, Any]) -> RunOutcome:
        """Read a report of `vramlab run --json`.

        Raises:
            UnusableRun: it used no GPU.
        """
        used = [device for device in report["devices"] if device["context_bytes"]]
        if not used and report["error"]:
            told = "\n".join(filter(None, (str(report["error"]), report.get("hint"))))
            raise UnusableRun(f"{report['program']} failed before it used a GPU: {told}")
        if not used:
            why = "it put nothing on a cuda device"
            if report["child_count"]:
                why = "the processes that it started did, which report for themselves: run one rank"
            raise UnusableRun(f"{report['program']} used no GPU itself: {why}")
        most = max(used, key=lambda device: device["needed_bytes"])
        facts = report.get("gpu_facts")
        return cls(
            gpu=report["gpu"],
            fits=report["fits"],
            peak_allocated_bytes=most["peak_allocated_bytes"],
            peak_reserved_bytes=most["peak_reserved_bytes"],
            context_bytes=most["context_bytes"],
            gpu_facts=None if facts is None else frozenset(facts),
            problem=_problem(report),
            seconds=report["seconds"],
        )


RunProgram = Callable[[GPUModel, Sequence[str]], RunOutcome]
"""Runs a program with arguments on a GPU."""


def run_once(options: Sequence[str], gpu: GPUModel, program: Sequence[str]) -> RunOutcome:
    """Run a program by `vramlab run`, in a process of its own. What it prints is left out.

    Args:
        options: of `vramlab run`, without `--gpu` and `--json`.
        gpu: from the catalogue.
        program: the script, or `-m` and a module, and its arguments.

    Raises:
        UnusableRun: there was no report, or the program used no GPU.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        ran = subprocess.run(
            [
                *(sys.executable, "-m", "vramlab", "run", "--gpu", gpu.name),
                *(*options, "--json", str(path), *program),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
        if not path.exists():
            said = "\n".join(ran.stderr.strip().splitlines()[-_LAST_LINES:])
            raise UnusableRun(f"a run ended with status {ran.returncode}, without a report\n{said}")
        report = json.loads(path.read_text(encoding="utf-8"))
    return RunOutcome.of(report)


def _problem(report: dict[str, Any]) -> str:
    if report["error"]:
        return str(report["error"]).splitlines()[0]
    if report["fits"] is None:
        return f"it ended with status {report['status']} by {report['stopped_by'] or 'itself'}"
    return ""
