"""`vramlab collect`: takes in submissions from a folder, or from what an LMS gave for download.

$ vramlab collect ~/Downloads/submissions.zip --assignment 02
$ vramlab collect handed-in/ --from folder
"""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from vramlab.progress import working

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vramlab_classroom.lms.collecting import Item
    from vramlab_classroom.lms.submission_names import Layout
    from vramlab_classroom.nbgrader.course import Course

_EXIT_OK = 0
_EXIT_NOT_ALL = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `collect` to the command line."""
    parser = subparsers.add_parser(
        "collect",
        help="collect submissions from a folder or an LMS's zip",
        description="Collect submissions from a Canvas or Moodle download, or from a folder with "
        "<student>/<assignment>/ or <student>/, into autograder/submitted/. Rejected files are "
        "listed with the reason. The exit status is 1 if any file was rejected.",
        examples=("vramlab collect submissions.zip --assignment 02",),
    )
    add_source(parser)
    parser.add_argument(
        "--overwrite",
        action="store_true",
        help="replace collected submissions even if they are newer",
    )
    parser.add_argument(
        "--db", metavar="URL", help="gradebook with the due dates (default: the course's gradebook)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Take them in, and list what became of each; answer the exit status.

    Raises:
        NoCourseError: no course here.
        UnusableParcelError: the source cannot be opened.
        VramlabError: the assignment is unknown.
    """
    with working("taking in submissions"):
        from vramlab_classroom.lms.collecting import Destination, collect
        from vramlab_classroom.nbgrader.course import find_course

        course = find_course(db_url=arguments.db)
        known, layout, assignment = asked_for(arguments, course)
        items = collect(
            arguments.source,
            Destination(course.submitted, known, _due_dates(course)),
            layout=layout,
            assignment=assignment,
            overwrite=arguments.overwrite,
        )
    return print_items(items, "taken", "NOT TAKEN")


def add_source(parser: argparse.ArgumentParser) -> None:
    """Add what says where submissions come from."""
    parser.add_argument("source", type=Path, help="folder or zip with the submissions")
    parser.add_argument(
        "--assignment",
        help="assignment of the submissions, such as 02 (default: from file and folder names)",
    )
    parser.add_argument(
        "--from",
        dest="layout",
        choices=("canvas", "moodle", "folder"),
        help="naming scheme of the files (default: detected)",
    )


def asked_for(
    arguments: argparse.Namespace, course: Course
) -> tuple[set[str], Layout | None, str | None]:
    """Return the assignments there are, and what the command line says of a source."""
    from vramlab_classroom.judge.exercises import exercise_names, find_exercise
    from vramlab_classroom.lms.submission_names import Layout

    masters = {path.name for path in course.solutions.glob("*") if path.is_dir()}
    known = masters | set(exercise_names())
    assignment = arguments.assignment
    if assignment is not None and assignment not in known:
        assignment = find_exercise(assignment).name
    return known, Layout(arguments.layout) if arguments.layout else None, assignment


def print_items(items: Sequence[Item], done: str, left: str) -> int:
    """List what became of each file; answer the exit status, 1 if any was left."""
    for item in items:
        # A file's name can be anything, also what a terminal would obey.
        print(f"{done if item.is_taken else left:<{len(left)}}  {item.source!r}: {item.text}")
    taken = sum(item.is_taken for item in items)
    print(f"{taken} {done}, {len(items) - taken} {left.lower()}")
    return _EXIT_OK if taken == len(items) else _EXIT_NOT_ALL


def _due_dates(course: Course) -> dict[str, datetime]:
    """Ask the gradebook, if there is one, when assignments are due."""
    from nbgrader.api import Assignment, Gradebook
    from sqlalchemy.engine import make_url

    url = make_url(course.db_url)
    if url.drivername == "sqlite" and not Path(url.database or "").exists():
        return {}  # opening it would make one
    with Gradebook(course.db_url) as gradebook:
        return {
            name: due
            for name, due in gradebook.db.query(Assignment.name, Assignment.duedate)
            if due is not None
        }
