"""Run the programs, and write what was found."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.explained.table import RESULTS_FILE, Row, row_of
from vramlab.progress import working

_GPU = "A100-80GB"
_ENGINES = ("portable", "native")


def main() -> int:
    """Write results.json and return the exit status."""
    rows = []
    for program in sorted(Path(__file__).parent.glob("program_*.py")):
        for engine in _ENGINES:
            with working(f"{program.name} on the {engine} engine"):
                rows.append(tried(program, engine))
    RESULTS_FILE.write_text(json.dumps([row._asdict() for row in rows], indent=1) + "\n")
    return 0


def tried(program: Path, engine: str) -> Row:
    """Run a program on an engine, and compare what explain reads from its snapshot."""
    with tempfile.TemporaryDirectory() as folder:
        snapshot, report = Path(folder, "snapshot.pickle"), Path(folder, "report.json")
        where = ["--engine", engine, "--gpu", _GPU]
        files = ["--json", f"{report}", "--snapshot", f"{snapshot}"]
        words = [sys.executable, "-m", "vramlab", "run", *where, *files, f"{program}"]
        subprocess.run(words, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        name = program.stem.removeprefix("program_").replace("_", " ")
        return row_of(name, engine, json.loads(report.read_text()), snapshot)


if __name__ == "__main__":
    sys.exit(main())
