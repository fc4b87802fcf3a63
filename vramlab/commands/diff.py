"""`vramlab diff`: compare two reports written by `vramlab run --json`, or memory snapshots.

$ vramlab diff old.json new.json
$ vramlab diff old.pickle new.pickle
$ vramlab diff --markdown --allow 1% old.json new.json
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from pathlib import Path

_EXIT_OK = 0
_EXIT_GREW = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `diff` to the command line."""
    parser = subparsers.add_parser(
        "diff",
        help="compare the memory of two runs, for example before and after a change",
        description="Compare two reports written by `vramlab run --json`, by category and by line. "
        "You can also pass memory snapshots from a real GPU. "
        "The exit status is 1 if the device memory of a GPU grew by more than --allow, or if the "
        "program no longer fits.",
        examples=(
            "vramlab diff old.json new.json",
            "vramlab diff --markdown --allow 1% old.json new.json",
            "vramlab diff old.pickle new.pickle",
        ),
    )
    parser.add_argument("old", type=Path, help="report or snapshot of the earlier run")
    parser.add_argument("new", type=Path, help="report or snapshot of the later run")
    parser.add_argument(
        "--allow",
        default="0",
        metavar="GROWTH",
        help="growth per GPU that is not a failure, for example '64 MiB' or 1%% (default: 0)",
    )
    parser.add_argument(
        "--markdown", action="store_true", help="print Markdown, for a pull request comment"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with sizes in bytes")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the comparison and return the exit status.

    Raises:
        VramlabError: One of the files is neither a report nor a snapshot.
    """
    from vramlab.explaining.as_report import is_snapshot, read_as_report, without_sources
    from vramlab.report.showing.difference import compare_reports, read_report
    from vramlab.report.showing.difference_text import as_markdown, as_text

    old, new = (
        read_as_report(path) if is_snapshot(path) else read_report(path)
        for path in (arguments.old, arguments.new)
    )
    if is_snapshot(arguments.old) != is_snapshot(arguments.new):
        old, new = without_sources(old), without_sources(new)
    difference = compare_reports(old, new)
    try:
        grew = difference.grew(arguments.allow)
    except ValueError as error:
        arguments.parser.error(f"--allow: {error}")
    if arguments.json:
        print(json.dumps({"grew": grew, **asdict(difference)}, indent=2, ensure_ascii=False))
    elif arguments.markdown:
        print(as_markdown(difference), end="")
    else:
        print(as_text(difference))
    return _EXIT_GREW if grew else _EXIT_OK
