"""`vramlab compare`: compare the virtual GPU with a recording from a real GPU.

$ vramlab compare assets/recordings/h200-torch2.11.0.json
$ vramlab compare assets/recordings/h200-torch2.11.0.json --only gpt2 --verbose
$ vramlab compare assets/recordings/h200-torch2.11.0.json --with native/h200-torch2.11.0.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from vramlab.streams import print_error

_EXIT_OK = 0
_EXIT_DIFFERENT = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `compare` to the command line."""
    parser = subparsers.add_parser(
        "compare",
        help="compare the virtual GPU with a recording from a real GPU",
        description="Run the recorded experiments and models on a virtual GPU of the same model, "
        "with the rules of the same PyTorch version, and compare every number to the byte. The "
        "exit status is 1 if there are differences other than the documented ones.",
        examples=(
            "vramlab compare assets/recordings/h200-torch2.11.0.json",
            "vramlab compare assets/recordings/h200-torch2.11.0.json --only gpt2 --verbose",
        ),
    )
    parser.add_argument("recording", type=Path, help="recording file written by `vramlab record`")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="compare only entries whose id contains PATTERN or matches it as a wildcard; "
        "repeatable (default: all entries)",
    )
    parser.add_argument(
        "--with",
        dest="other",
        type=Path,
        metavar="RECORDING",
        help="compare with another recording, for example from the native engine, instead of "
        "running the virtual GPU",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="also print matching numbers, every unmatched allocation, and secondary statistics",
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the differences and return the exit status.

    Raises:
        VramlabError: The recording is unreadable, or no entry matches.
    """
    from vramlab.recordings.compare import compare, recorded_in
    from vramlab.recordings.entries import select
    from vramlab.recordings.report import lines_of, summary_lines
    from vramlab.recordings.store import RecordingFile

    recording = RecordingFile.open(arguments.recording)
    names = select(tuple(recording.entries), arguments.only)
    how: dict[str, Any] = {}
    other = None
    if arguments.other is None:
        for note in _notes(recording.machine):
            print_error(note)
    else:
        other = RecordingFile.open(arguments.other)
        how["measure"] = recorded_in(other, names)
    comparisons = []
    for comparison in compare(recording, names, **how):
        comparisons.append(comparison)
        if not arguments.json:
            print("\n".join(lines_of(comparison, verbose=arguments.verbose)), flush=True)
    if arguments.json:
        data = {
            "recording": arguments.recording.name,
            "machine": recording.machine,
            "with": other and other.machine,
            "entries": [comparison.to_dict() for comparison in comparisons],
        }
        print(json.dumps(data, indent=1, ensure_ascii=False))
    else:
        print("\n".join(summary_lines(comparisons)))
    return _EXIT_DIFFERENT if any(result.unexplained for result in comparisons) else _EXIT_OK


def _notes(machine: dict[str, Any]) -> list[str]:
    """Return a note for each package whose installed version differs from the recorded one."""
    from vramlab.recordings.machine import distribution_version

    installed = {name: distribution_version(name) for name in ("torch", "transformers")}
    recorded = {"torch": machine["installed_torch"], "transformers": machine["transformers"]}
    return [
        f"note: recorded with {name} {recorded[name]}, but {name} {installed[name]} is installed; "
        "its Python code may run different ops"
        for name in installed
        if str(installed[name]).partition("+")[0] != str(recorded[name]).partition("+")[0]
    ]
