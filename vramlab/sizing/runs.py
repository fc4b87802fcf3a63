"""One run of a program on a virtual GPU, in a separate process, as data."""

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
from vramlab.report.summary import Fit

_LAST_LINES = 12
"""Lines of a failed program's output that are shown."""


class UnusableRun(VramlabError):
    """A run failed before it was known whether the program fits; the message says why."""


@dataclass(frozen=True)
class RunOutcome:
    """Result of a run."""

    gpu: str
    """Name in the catalogue."""
    fits: bool | None
    """Whether the memory was sufficient; None: the program failed for another reason."""
    peak_allocated_bytes: int
    """Peak on the GPU that used most; if memory ran out, until then."""
    peak_reserved_bytes: int
    """Peak of reserved memory on the same GPU."""
    context_bytes: int
    """Size of the CUDA context."""
    gpu_facts: frozenset[str] | None
    """Properties of the GPU that the run depended on; None: unknown."""
    problem: str = ""
    """How it failed or ran out of memory, in a line."""
    seconds: float = 0.0
    """Duration of the simulated run."""
    unsure: Fit | None = None
    """The verdict if the result is uncertain."""
    reasons: tuple[str, ...] = ()
    """Why the program may need more, or less, than the run counted."""

    @property
    def outcome(self) -> Fit:
        """The verdict about whether the program fits."""
        if self.unsure is not None:
            return self.unsure
        if self.fits is None:
            return Fit.CUT_SHORT
        return Fit.FITS if self.fits else Fit.DOES_NOT_FIT

    @property
    def needed_bytes(self) -> int:
        """Device memory used: reserved memory plus the CUDA context."""
        return self.peak_reserved_bytes + self.context_bytes

    @classmethod
    def of(cls, report: dict[str, Any]) -> RunOutcome:
        """Read a report of `vramlab run --json`.

        Raises:
            UnusableRun: The run used no GPU.
        """
        used = [device for device in report["devices"] if device["context_bytes"]]
        if not used and report["error"]:
            error = "\n".join(filter(None, (str(report["error"]), report.get("hint"))))
            raise UnusableRun(f"{report['program']} failed before it used a GPU: {error}")
        if not used:
            why = "it put nothing on a cuda device"
            if report["child_count"]:
                why = "only the processes it started did. Run a single rank instead"
            raise UnusableRun(f"{report['program']} used no GPU itself: {why}")
        most = max(used, key=lambda device: device["needed_bytes"])
        facts = report.get("gpu_facts")
        outcome = Fit(report["outcome"])
        return cls(
            gpu=report["gpu"],
            fits=outcome.had_room,
            peak_allocated_bytes=most["peak_allocated_bytes"],
            peak_reserved_bytes=most["peak_reserved_bytes"],
            context_bytes=most["context_bytes"],
            gpu_facts=None if facts is None else frozenset(facts),
            problem=_problem(report),
            seconds=report["seconds"],
            unsure=outcome if report["reasons"] and outcome.had_room is not None else None,
            reasons=tuple(reason["text"] for reason in report["reasons"]),
        )


RunProgram = Callable[[GPUModel, Sequence[str]], RunOutcome]
"""Runs a program with arguments on a GPU."""


RunCommand = Callable[[Sequence[str]], tuple[int, str]]
"""Runs `vramlab` with arguments in a separate process; returns exit status and end of stderr."""


def run_once(
    options: Sequence[str],
    gpu: GPUModel,
    program: Sequence[str],
    run_command: RunCommand | None = None,
) -> RunOutcome:
    """Run a program with `vramlab run` in a separate process. Its output is discarded.

    Args:
        options: Options of `vramlab run`, without `--gpu` and `--json`.
        gpu: GPU from the catalogue.
        program: The script, or `-m` and a module, and its arguments.
        run_command: Runs the command; None starts a new Python process.

    Raises:
        UnusableRun: The run left no report, or the program used no GPU.
    """
    return RunOutcome.of(report_of(["--gpu", gpu.name, *options], program, run_command))


def report_of(
    options: Sequence[str], program: Sequence[str], run_command: RunCommand | None = None
) -> dict[str, Any]:
    """Run a program as `run_once` does, and return what `vramlab run --json` reported.

    Args:
        options: Options of `vramlab run`, without `--json`.
        program: The script, or `-m` and a module, and its arguments.
        run_command: Runs the command; None starts a new Python process.

    Raises:
        UnusableRun: The run left no report.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.json"
        words = ["run", *options, "--json", str(path), *program]
        status, stderr = (run_command or _new_python)(words)
        if not path.exists():
            said = "\n".join(stderr.strip().splitlines()[-_LAST_LINES:])
            raise UnusableRun(
                f"a run ended with exit status {status} and without a report. Its last lines:\n"
                f"{said}"
            )
        report: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return report


def _new_python(words: Sequence[str]) -> tuple[int, str]:
    ran = subprocess.run(
        [sys.executable, "-m", "vramlab", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        errors="replace",
    )
    return ran.returncode, ran.stderr


def _problem(report: dict[str, Any]) -> str:
    if report["error"]:
        return str(report["error"]).splitlines()[0]
    if report["outcome"] == Fit.CUT_SHORT:
        by = f" ({report['stopped_by']})" if report["stopped_by"] else ""
        return f"it ended with exit status {report['status']}{by}"
    return ""
