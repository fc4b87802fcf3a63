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
from vramlab.recordings.entries import RULE
from vramlab.recordings.known import names_and_reasons

RESULTS_FILE = Path(__file__).with_name("native.json")
"""What comparisons found; made on a machine with the native engine."""

ALL, CALLS, PROGRAMS = "everything", "single calls", "programs"

Row = dict[str, Any]


def rows_of(data: Mapping[str, Any]) -> list[Row]:
    """Add up one comparison, as `vramlab compare --json` prints it: single calls, and programs."""
    compared = [entry for entry in data["entries"] if entry["skipped"] is None]
    calls = [entry for entry in compared if entry["entry"].startswith(RULE)]
    programs = [entry for entry in compared if not entry["entry"].startswith(RULE)]
    if data["machine"].get("engine") != "native":
        return [_row(data, ALL, compared)]
    kinds = ((CALLS, calls), (PROGRAMS, programs))
    return [_row(data, what, entries) for what, entries in kinds if entries]


def _row(data: Mapping[str, Any], what: str, compared: Sequence[Mapping[str, Any]]) -> Row:
    numbers = [number for entry in compared for number in entry["numbers"]]
    differing = [number for number in numbers if number["difference_bytes"]]
    reasons = Counter(number["known"] or "" for number in differing)
    computed = data["machine"].get("engine") == "native"
    return {
        "gpu": catalogue.find(data["machine"]["gpu"]).name,
        "torch": data["machine"]["torch"].partition("+")[0],
        "engine": "portable" if data["with"] is None else "native",
        "against": "native" if computed else "measured",
        "what": what,
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


def table(rows: Sequence[Row]) -> str:
    """Return the table, and what it leaves open."""
    lines = [
        "| engine | compared with | GPU | PyTorch | what | entries equal | numbers equal "
        "| refused |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        equal = f"{row['equal_numbers']:,} of {row['numbers']:,}"
        lines.append(
            f"| {row['engine']} | {_GROUNDS[row['against']]} | {row['gpu']} | {row['torch']} | "
            f"{row['what']} | {row['equal_entries']} of {row['entries']} | {equal} | "
            f"{len(row['missing'])} |"
        )
    return "\n".join([*lines, "", "What differs:", "", *_notes(rows)])


_GROUNDS = {"measured": "a recording of this GPU", "native": "the native engine"}


def _notes(rows: Iterable[Row]) -> list[str]:
    """Return what differs, once for all rows in which the same does."""
    where: dict[str, list[str]] = {}
    for row in rows:
        if row["equal_entries"] < row["entries"]:
            note = f"{row['engine']}, {row['what']}: {_note(row)}"
            where.setdefault(note, []).append(f"{row['gpu']} under {row['torch']}")
    return [f"- {note} ({', '.join(rows)})." for note, rows in where.items()]


def _note(row: Row) -> str:
    named = {name for name, _, _ in names_and_reasons()}
    told = [f"{count} {name}" for name, count in row["reasons"].items() if name in named]
    parts = [f"with a named reason: {', '.join(told)}"] if told else []
    parts += [f"without one: in {_listed(row['unnamed'])}"] if row["unnamed"] else []
    parts += [f"refused or failed: {_listed(row['missing'])}"] if row["missing"] else []
    return "; ".join(parts)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def markdown() -> str:
    """Return the part of docs/accuracy.md."""
    return table(json.loads(RESULTS_FILE.read_text(encoding="utf-8")))


def main(argv: Sequence[str] | None = None) -> int:
    """Keep what comparisons found: rows for each engine, GPU and PyTorch."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.native")
    parser.add_argument("comparisons", nargs="+", type=Path, metavar="COMPARISON")
    known = json.loads(RESULTS_FILE.read_text(encoding="utf-8")) if RESULTS_FILE.exists() else []
    rows = {_key(row): row for row in known}
    for path in parser.parse_args(argv).comparisons:
        for row in rows_of(json.loads(path.read_text(encoding="utf-8"))):
            rows[_key(row)] = row
    text = json.dumps([rows[key] for key in sorted(rows)], indent=1)
    RESULTS_FILE.write_text(f"{text}\n", encoding="utf-8")
    return 0


def _key(row: Row) -> tuple[str, ...]:
    return row["engine"], row["what"], row["gpu"], row["torch"]


if __name__ == "__main__":
    raise SystemExit(main())
