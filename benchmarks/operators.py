"""Table of docs/accuracy.md: every operator of PyTorch's own database, on both engines.

`operator_calls` runs each operator, module and optimizer that PyTorch tests itself with, and
attention over many shapes. Here both engines' allocations are compared: the requested sizes in
their order, and the peaks.

    vramlab native setup --cudnn
    python -m benchmarks.operators                 half an hour; writes operators.json
    python -m benchmarks.operators --only gather   prints what differs, and writes nothing
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from vramlab import catalogue, native

RESULTS_FILE = Path(__file__).with_name("operators.json")
"""What was compared; made on a machine with the native engine."""

SAMPLE_FILE = Path(__file__).with_name("operators_sample.json")
"""What the native engine allocates in a few calls of some operators; the tests compare them."""

GPU = "A100-40GB"
_EVERY = 16
_CALLS_OF_SAMPLE = 2
_ROOT = Path(__file__).parents[1]

Call = Mapping[str, Any]
Row = Mapping[str, Any]
Calls = Mapping[str, Call]


@dataclass
class Comparison:
    """What both engines say of one entry.

    Attributes:
        entry: its name.
        equal: how many calls allocate the same, with the same peaks.
        differing: what of each other call differs, by its label.
        refused: calls that the native engine does not run.
        by_values: calls that differ, and whose sizes follow from values that neither engine has.
        ended: the exit status of the native engine's process, negative for a signal.
    """

    entry: str
    equal: int = 0
    differing: dict[str, str] = field(default_factory=dict)
    refused: int = 0
    by_values: int = 0
    ended: int = 0

    @property
    def ran(self) -> int:
        """How many calls PyTorch's own code ran."""
        return self.equal + len(self.differing)


def compare(native_row: Mapping[str, Any], portable_row: Mapping[str, Any] | None) -> Comparison:
    """Compare the calls of one entry: `operator_calls` writes such rows."""
    found = Comparison(native_row["entry"], ended=native_row["ended"])
    portable: Calls = {} if portable_row is None else portable_row["calls"]
    for label, expected in native_row["calls"].items():
        if "raised" in expected:
            found.refused += 1
        elif (difference := _difference(expected, portable.get(label))) is None:
            found.equal += 1
        elif expected.get("by_values") or portable.get(label, {}).get("by_values"):
            found.by_values += 1
        else:
            found.differing[label] = difference
    return found


def _difference(expected: Call, computed: Call | None) -> str | None:
    """Describe what differs first; None: nothing."""
    if computed is None:
        return "not reached"
    if "raised" in computed:
        return str(computed["raised"])
    for name in ("forward", "forward_peak_bytes", "backward", "backward_peak_bytes"):
        if computed[name] != expected[name]:
            return f"{name}: native {expected[name]}, portable {computed[name]}"
    return None


def read(file: Path) -> dict[str, Row]:
    """Read the rows that `operator_calls` has written, by entry."""
    with open(file, encoding="utf-8") as lines:
        return {row["entry"]: row for row in map(json.loads, lines)}


def compare_rows(native_rows: Mapping[str, Row], portable: Mapping[str, Row]) -> list[Comparison]:
    """Compare everything that ran on the native engine."""
    return [compare(row, portable.get(entry)) for entry, row in native_rows.items()]


def run_both(only: str) -> tuple[dict[str, Row], dict[str, Row]]:
    """Run the entries whose names match on both engines, side by side: native, portable.

    Raises:
        NativeEngineError: the native engine is not set up for this PyTorch.
    """
    build = native.find(_torch_version())
    path = f"{_ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    # The databases go through sets of words: one seed, so that both engines run the same samples.
    base = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": "0"}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "native"), Path(folder, "portable")
        words = ["-m", "benchmarks.operator_calls", "--only", only]
        portable = subprocess.Popen([sys.executable, *words, "--gpu", GPU, str(files[1])], env=base)
        native.run(build, [*words, str(files[0])], catalogue.find(GPU), base=base)
        portable.wait()
        return read(files[0]), read(files[1])


def sample_of(native_rows: Iterable[Row], comparisons: Iterable[Comparison]) -> dict[str, Any]:
    """Take the first small calls of every sixteenth operator, as the native engine ran them."""
    equal = {one.entry for one in comparisons if one.equal and not one.differing}
    rows = [row for row in native_rows if row["entry"] in equal and row["entry"].startswith("op ")]
    traces = {
        row["entry"]: {
            label: call
            for label, call in list(row["calls"].items())[:_CALLS_OF_SAMPLE]
            if "raised" not in call
        }
        for row in rows[::_EVERY]
    }
    return {"torch": _torch_version(), "traces": traces}


def _torch_version() -> str:
    return torch.__version__.partition("+")[0]


def results(comparisons: Iterable[Comparison]) -> dict[str, Any]:
    """Add up comparisons, by kind: op, module, optimizer, attention."""
    kinds: dict[str, Counter[str]] = {}
    differing: dict[str, dict[str, Any]] = {}
    for one in comparisons:
        count = kinds.setdefault(one.entry.partition(" ")[0], Counter())
        count["entries"] += 1
        count["calls"] += one.ran
        count["equal calls"] += one.equal
        count["refused calls"] += one.refused
        count["calls sized by values"] += one.by_values
        if one.ran + one.by_values == 0:
            count["entries that PyTorch's code does not run"] += 1
        elif one.differing:
            label, difference = next(iter(one.differing.items()))
            differing[one.entry] = {"calls": one.ran, "equal": one.equal, label: difference[:400]}
        else:
            count["equal entries"] += 1
    return {
        "torch": _torch_version(),
        "gpu": GPU,
        "kinds": kinds,
        "differing": differing,
    }


def markdown() -> str:
    """Return the part of docs/accuracy.md: totals, and every entry that differs."""
    data = json.loads(RESULTS_FILE.read_text(encoding="utf-8"))
    lines = [
        "| kind | entries | run natively | equal | calls | equal calls | sized by values |",
        "|---|---|---|---|---|---|---|",
    ]
    for kind, count in data["kinds"].items():
        ran = count["entries"] - count.get("entries that PyTorch's code does not run", 0)
        lines.append(
            f"| {kind} | {count['entries']:,} | {ran:,} | {count.get('equal entries', 0):,} "
            f"| {count['calls']:,} | {count['equal calls']:,} "
            f"| {count['calls sized by values']:,} |"
        )
    listed = ", ".join(
        f"`{entry.partition(' ')[2]}` ({each['calls'] - each['equal']} of {each['calls']})"
        for entry, each in sorted(data["differing"].items())
    )
    return "\n".join([*lines, "", f"Calls that differ: {listed or 'none'}."])


def _shown(comparisons: Iterable[Comparison], most: int) -> Iterator[str]:
    for one in comparisons:
        if one.ended:
            yield f"{one.entry}: the native engine's process ended with {one.ended}"
        if one.differing:
            yield f"{one.entry}: {len(one.differing)} of {one.ran} differ"
        for label, difference in list(one.differing.items())[:most]:
            yield f"    {label}: {difference[:600]}"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run and compare; keep the results where everything was run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="regular expression of the entries' names")
    parser.add_argument("--most", type=int, default=3, help="differing calls shown of each entry")
    parser.add_argument(
        "--files",
        nargs=2,
        type=Path,
        help="compare what operator_calls has written: native, portable",
    )
    wanted = parser.parse_args(arguments)
    rows = [*map(read, wanted.files)] if wanted.files else run_both(wanted.only)
    found = compare_rows(*rows)
    print("\n".join(_shown(found, wanted.most)))
    summary = results(found)
    for kind, count in summary["kinds"].items():
        print(kind, dict(count))
    if not wanted.only:
        RESULTS_FILE.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
        sample = sample_of(rows[0].values(), found)
        SAMPLE_FILE.write_text(json.dumps(sample) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
