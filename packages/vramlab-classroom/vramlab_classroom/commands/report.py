"""`vramlab report`: how a class did on an assignment.

$ vramlab report 02
$ vramlab report 02 -o report.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

from vramlab.progress import working

_EXIT_OK = 0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `report` to the command line."""
    parser = subparsers.add_parser(
        "report",
        help="show how a class did on an assignment",
        description="Show how a class did on a graded assignment: points, solved tasks, common "
        "mistakes, late submissions, and submissions that need manual grading. For a workshop, "
        "also show the leaderboards for fewest bytes and fewest steps.",
        examples=("vramlab report 02", "vramlab report 02 --output report.html"),
    )
    parser.add_argument("assignment", help="number or name of the assignment, such as 02")
    parser.add_argument(
        "-o", "--output", type=Path, help="HTML file to write (default: print as text)"
    )
    parser.add_argument("--db", metavar="URL", help="gradebook (default: the course's gradebook)")
    parser.add_argument(
        "--names",
        action="store_true",
        help="show names on the leaderboards of workshops (default: only counts)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print or write the report; answer the exit status.

    Raises:
        NoCourseError: no course here.
        UnknownAssignmentError: the gradebook has no such assignment.
    """
    with working("reading the gradebook"):
        from nbgrader.api import Gradebook

        from vramlab_classroom.nbgrader.course import find_course
        from vramlab_classroom.nbgrader.scores import find_assignment, read_scores
        from vramlab_classroom.reports.class_page import class_page
        from vramlab_classroom.reports.class_report import class_report, report_lines
        from vramlab_classroom.run.journal import read_markings

        course = find_course(db_url=arguments.db)
        with Gradebook(course.db_url) as gradebook:
            name = find_assignment(gradebook, arguments.assignment)
            scores = read_scores(gradebook, [name])
        report = class_report(name, scores, read_markings(course.journal, name))
    if arguments.output:
        arguments.output.write_text(class_page(report, names=arguments.names), encoding="utf-8")
        print(arguments.output)
    else:
        print("\n".join(report_lines(report, names=arguments.names)))
    return _EXIT_OK
