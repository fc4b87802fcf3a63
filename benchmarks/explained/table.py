"""What was found about the explanations, as rows and as the table of docs/accuracy.md."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from vramlab.explaining.as_report import read_as_report
from vramlab.explaining.explanation import explain
from vramlab.table import Table
from vramlab.units import MIB

RESULTS_FILE = Path(__file__).with_name("results.json")

_SAME = {
    "buffers": "parameters",  # both are moved by Module._apply
    "inputs": "other",
}
"""Categories that explain does not tell apart: it calls the first what the second is called."""


class Row(NamedTuple):
    """One program on one engine."""

    program: str
    engine: str
    peak_bytes: int
    """Allocated at the peak."""
    right_bytes: int
    """Of these, in the right category."""
    is_replayed: bool
    """Whether the replay reserves what was reserved."""


class Advice(NamedTuple):
    """One change to a program."""

    change: str
    before_bytes: int
    """Allocated at the peak without it."""
    said_bytes: int
    """The peak that `vramlab explain` says remains."""
    after_bytes: int
    """The peak with the change."""


def row_of(program: str, engine: str, report: Mapping[str, Any], snapshot: Path) -> Row:
    """Compare the truth with what a snapshot tells.

    Args:
        program: its name in the table.
        engine: which ran it.
        report: what `vramlab run --json` wrote.
        snapshot: what `vramlab run --snapshot` wrote.
    """
    (truth,), (told,) = report["devices"], read_as_report(snapshot)["devices"]
    right_bytes = _overlap(truth["category_bytes"], told["category_bytes"])
    (explained,) = explain(f"{snapshot}").gpus
    replayed = bool(explained.is_replayed)
    return Row(program, engine, truth["peak_allocated_bytes"], right_bytes, replayed)


def _overlap(truth: Mapping[str, int], told: Mapping[str, int]) -> int:
    """Add up the bytes of each category that both have."""
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for side, categories in enumerate((truth, told)):
        for name, size_bytes in categories.items():
            sums[_SAME.get(name, name)][side] += size_bytes
    return sum(min(pair) for pair in sums.values())


def markdown() -> str:
    """Return the tables of docs/accuracy.md."""
    results = json.loads(RESULTS_FILE.read_text())
    rows = [Row(**row) for row in results["rows"]]
    by_program: dict[str, dict[str, Row]] = defaultdict(dict)
    for row in rows:
        by_program[row.program][row.engine] = row
    shown = tuple(
        (
            name,
            f"{engines['native'].peak_bytes / MIB:,.1f}",
            *(
                f"{engines[engine].right_bytes / engines[engine].peak_bytes:.1%}"
                for engine in ("portable", "native")
            ),
        )
        for name, engines in by_program.items()
    )
    right = sum(row.right_bytes for row in rows) / sum(row.peak_bytes for row in rows)
    native = [row for row in rows if row.engine == "native"]
    notes = (
        f"{right:.1%} of all bytes at the peak are in the right category.",
        f"A replay reserves what PyTorch's own allocator reserved in "
        f"{sum(row.is_replayed for row in native)} of {len(native)} programs.",
    )
    caption = "Bytes at the peak that vramlab explain puts into the right category"
    header = ("program", "allocated at the peak, MiB", "portable engine", "native engine")
    guesses = Table(caption, header, shown, notes).markdown()
    advice = [Advice(**row) for row in results["advice"]]
    return f"{guesses}\n\n{_advice(advice)}"


def _advice(advice: list[Advice]) -> str:
    caption = "Peaks that vramlab explain says remain after a change, and those of a GPT-2 with it"
    header = ("change", "peak before, MiB", "said to remain", "measured", "error")
    rows = tuple(
        (
            each.change,
            *(f"{size / MIB:,.1f}" for size in each[1:]),
            f"{each.said_bytes / each.after_bytes - 1:+.1%}",
        )
        for each in advice
    )
    return Table(caption, header, rows).markdown()
