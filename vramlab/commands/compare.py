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
        description="Run what was recorded on a virtual GPU of the same model, by the rules of the "
        "same PyTorch, and compare to the byte. Ends with status 1 if something differs that is "
        "no known difference.",
    )
    parser.add_argument("recording", type=Path, help="the file that `vramlab record` has written")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="PATTERN",
        help="compare entries that fit: a part of the id, or with wildcards; may come again",
    )
    parser.add_argument(
        "--with",
        dest="other",
        type=Path,
        metavar="RECORDING",
        help="compare with another recording, such as one of the native engine, and run nothing",
    )
    parser.add_argument(
        "--verbose",
        action="store_true",
        help="print all numbers, all allocations that only one has, and other statistics",
    )
    parser.add_argument("--json", action="store_true", help="print the comparison as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare, and print what differs; answer the exit status.

    Raises:
        VramlabError: the recording cannot be read, or has no such entries.
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
    return _EXIT_DIFFERENT if any(each.unexplained for each in comparisons) else _EXIT_OK


def _notes(machine: dict[str, Any]) -> list[str]:
    """Return what is not the same here and there, and may change which ops a program runs."""
    from vramlab.recordings.machine import distribution_version

    here = {"torch": distribution_version("torch"), "transformers": None}
    here["transformers"] = distribution_version("transformers")
    there = {"torch": machine["installed_torch"], "transformers": machine["transformers"]}
    return [
        f"note: recorded with {name} {there[name]}, compared with {name} {here[name]}: Python code "
        "of the two may run other ops"
        for name in here
        if str(here[name]).partition("+")[0] != str(there[name]).partition("+")[0]
    ]
