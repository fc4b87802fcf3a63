"""`vramlab diff`: what has changed between two reports of `vramlab run --json`.

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
        help="show what has changed between two reports of `vramlab run --json`",
        description="Show what a program's memory has gained and lost from one report to the next, "
        "by what it consists of and by line. Ends with status 1 if more is needed on a GPU than "
        "--allow says, or if it fits no longer.",
    )
    parser.add_argument("old", type=Path, help="what `vramlab run --json` wrote before")
    parser.add_argument("new", type=Path, help="and what it wrote now")
    parser.add_argument(
        "--allow",
        default="0",
        metavar="GROWTH",
        help="how much more each GPU may need, such as '64 MiB' or 1%% (default: nothing)",
    )
    parser.add_argument("--markdown", action="store_true", help="print it as a pull request has it")
    parser.add_argument("--json", action="store_true", help="print it as JSON, in bytes")
    parser.set_defaults(run=run, parser=parser)


def run(arguments: argparse.Namespace) -> int:
    """Compare and print; answer the exit status.

    Raises:
        UnreadableReport: one of the files is no report.
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
