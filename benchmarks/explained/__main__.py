"""Run the programs, and write what was found."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.explained.table import RESULTS_FILE, Advice, Row, row_of
from vramlab.explaining.explanation import explain
from vramlab.progress import working

_GPU = "A100-80GB"
_ENGINES = ("portable", "native")
_ADVISED = Path(__file__).with_name("advised_gpt2.py")
_CHANGES = {
    "activation checkpointing": ("", "checkpointing"),
    "the loss at": ("", "chunks"),
    "F.scaled_dot_product_attention": ("", "sdpa"),
    "torch.no_grad()": ("evaluation", "no_grad"),
}
"""How a remedy begins: how the program is run, and the word that makes the change."""


def main() -> int:
    """Write results.json and return the exit status."""
    rows = []
    for program in sorted(Path(__file__).parent.glob("program_*.py")):
        for engine in _ENGINES:
            with working(f"{program.name} on the {engine} engine"):
                rows.append(tried(program, engine))
    with working("changes that are advised"):
        advice = [advised(*change) for change in _CHANGES.items()]
    results = {
        "rows": [row._asdict() for row in rows],
        "advice": [each._asdict() for each in advice],
    }
    RESULTS_FILE.write_text(json.dumps(results, indent=1) + "\n")
    return 0


def tried(program: Path, engine: str) -> Row:
    """Run a program on an engine, and compare what explain reads from its snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        report, snapshot = _run(engine, folder, f"{program}")
        name = program.stem.removeprefix("program_").replace("_", " ")
        return row_of(name, engine, report, snapshot)


def advised(beginning: str, words: tuple[str, str], engine: str = "native") -> Advice:
    """Compare the peak that a remedy promises with the peak after the change."""
    how, change = words
    with tempfile.TemporaryDirectory() as folder:
        before, snapshot = _run(engine, folder, f"{_ADVISED}", *how.split())
        (gpu,) = explain(f"{snapshot}").gpus
        (remedy,) = (each for each in gpu.remedies if each.change.startswith(beginning))
        after, _ = _run(engine, folder, f"{_ADVISED}", *how.split(), change)
    before_bytes, after_bytes = (
        report["devices"][0]["peak_allocated_bytes"] for report in (before, after)
    )
    return Advice(beginning.removesuffix(" at"), before_bytes, remedy.peak_bytes, after_bytes)


def _run(engine: str, folder: str, *program: str) -> tuple[Any, Path]:
    """Run a program; return its report, and the path of its snapshot."""
    snapshot, report = Path(folder, "snapshot.pickle"), Path(folder, "report.json")
    where = ["--engine", engine, "--gpu", _GPU]
    files = ["--json", f"{report}", "--snapshot", f"{snapshot}"]
    words = [sys.executable, "-m", "vramlab", "run", *where, *files, *program]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return json.loads(report.read_text()), snapshot


if __name__ == "__main__":
    sys.exit(main())
