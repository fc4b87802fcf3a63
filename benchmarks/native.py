"""Table of docs/accuracy.md: the native engine against a GPU, and the portable one against it.

vramlab compare RECORDING --with NATIVE --json > COMPARISON     the native engine
vramlab compare NATIVE --json > COMPARISON                      the portable engine
python -m benchmarks.native COMPARISON ...                      keeps what they say
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vramlab import catalogue
from vramlab.recordings.known import names_and_reasons

RESULTS_FILE = Path(__file__).with_name("native.json")
"""What comparisons found; made on a machine with the native engine."""

Row = dict[str, Any]


def row_of(data: Mapping[str, Any]) -> Row:
    """Add up one comparison, as `vramlab compare --json` prints it."""
    compared = [entry for entry in data["entries"] if entry["skipped"] is None]
    numbers = [number for entry in compared for number in entry["numbers"]]
    differing = [number for number in numbers if number["difference_bytes"]]
    reasons = Counter(number["known"] or "" for number in differing)
    computed = data["machine"].get("engine") == "native"
    return {
        "gpu": catalogue.find(data["machine"]["gpu"]).name,
        "torch": data["machine"]["torch"].partition("+")[0],
        "engine": "portable" if data["with"] is None else "native",
        "against": "native" if computed else "measured",
        "entries": len(compared),
        "equal_entries": sum(entry["equal"] for entry in compared),
        "numbers": len(numbers),
        "equal_numbers": len(numbers) - len(differing),
        "reasons": dict(sorted(reasons.items())),
        "unnamed": sorted(
            entry["entry"]
            for entry in compared
            if any(each["difference_bytes"] and not each["known"] for each in entry["numbers"])
        ),
        "missing": sorted(entry["entry"] for entry in compared if entry["problem"]),
    }


def table(rows: Iterable[Row]) -> str:
    """The table, and what it leaves open."""
    lines = [
        "| engine | held against | GPU | PyTorch | entries equal | numbers equal | refused |",
        "|---|---|---|---|---|---|---|",
    ]
    notes: list[str] = []
    for row in rows:
        equal = f"{row['equal_numbers']:,} of {row['numbers']:,}"
        lines.append(
            f"| {row['engine']} | {_GROUNDS[row['against']]} | {row['gpu']} | {row['torch']} | "
            f"{row['equal_entries']} of {row['entries']} | {equal} | {len(row['missing'])} |"
        )
        notes.append(_note(row))
    return "\n".join([*lines, "", "What differs:", "", *notes])


_GROUNDS = {"measured": "the recording of this GPU", "native": "the native engine"}


def _note(row: Row) -> str:
    named = {name for name, _, _ in names_and_reasons()}
    told = [f"{count} {name}" for name, count in row["reasons"].items() if name in named]
    who = f"{row['engine']}, {row['gpu']}, PyTorch {row['torch']}"
    parts = [f"numbers with a named reason: {', '.join(told) or 'none'}"]
    parts += [f"without one in {_listed(row['unnamed'])}"] if row["unnamed"] else []
    parts += [f"refused, or otherwise: {_listed(row['missing'])}"] if row["missing"] else []
    return f"- {who}: {'; '.join(parts)}."


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def markdown() -> str:
    """The part of docs/accuracy.md."""
    return table(json.loads(RESULTS_FILE.read_text(encoding="utf-8")))


def main(argv: Sequence[str] | None = None) -> int:
    """Keep what comparisons found: one row for each engine, GPU and PyTorch."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native")
    parser.add_argument("comparisons", nargs="+", type=Path, metavar="COMPARISON")
    known = json.loads(RESULTS_FILE.read_text(encoding="utf-8")) if RESULTS_FILE.exists() else []
    rows = {_key(row): row for row in known}
    for path in parser.parse_args(argv).comparisons:
        row = row_of(json.loads(path.read_text(encoding="utf-8")))
        rows[_key(row)] = row
    text = json.dumps([rows[key] for key in sorted(rows)], indent=1)
    RESULTS_FILE.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _key(row: Row) -> tuple[str, str, str]:
    return row["engine"], row["gpu"], row["torch"]


if __name__ == "__main__":
    raise SystemExit(main())
