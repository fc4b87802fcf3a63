"""`vramlab diff`: compare two reports written by `vramlab run --json`.

$ vramlab diff old.json new.json
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
        "The exit status is 1 if the device memory of a GPU grew by more than --allow, or if the "
        "program no longer fits.",
        examples=(
            "vramlab diff old.json new.json",
            "vramlab diff --markdown --allow 1% old.json new.json",
        ),
    )
    parser.add_argument("old", type=Path, help="report of the earlier run")
    parser.add_argument("new", type=Path, help="report of the later run")
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
        UnreadableReport: One of the files is not a report.
    """
    from vramlab.report.showing.difference import compare_reports, read_report
    from vramlab.report.showing.difference_text import as_markdown, as_text

    difference = compare_reports(read_report(arguments.old), read_report(arguments.new))
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
