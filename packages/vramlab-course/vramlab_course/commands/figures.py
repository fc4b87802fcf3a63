"""`vramlab figures`: every figure that the documents publish, and what came of it.

$ vramlab figures
$ vramlab figures --markdown
"""

from __future__ import annotations

import argparse

from vramlab.progress import working
from vramlab.streams import print_error

_EXIT_OK = 0
_EXIT_UNEXPLAINED = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `figures` to the command line."""
    parser = subparsers.add_parser(
        "figures",
        help="compare published numbers with predictions and measurements",
        description="Run every experiment under the conditions of its publication, and compare "
        "published, predicted and measured numbers. Each difference is explained. The exit status "
        "is 1 if a difference has no explanation.",
        examples=("vramlab figures",),
    )
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the figures; answer the exit status: 1 for an unexplained difference, else 0."""
    with working("running all experiments with published figures") as step:
        from vramlab_course.experiments.survey import survey

        result = survey(tell=step.tell)
    print(result.markdown() if arguments.markdown else result.table())
    for finding in result.unexplained:
        print_error(
            f"unexplained: {finding.figure} {finding.part}".rstrip()
            + f": published {finding.published} {finding.unit}, measured {finding.measured}"
        )
    return _EXIT_UNEXPLAINED if result.unexplained else _EXIT_OK
