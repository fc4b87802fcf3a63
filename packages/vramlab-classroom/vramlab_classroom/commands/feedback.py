"""`vramlab feedback`: packs feedback pages for the LMS that the submissions came from.

$ vramlab feedback ~/Downloads/submissions.zip -o feedback.zip
"""

from __future__ import annotations

import argparse
from pathlib import Path

from vramlab.progress import working
from vramlab_classroom.commands.collect import add_source, print_items


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `feedback` to the command line."""
    parser = subparsers.add_parser(
        "feedback",
        help="pack feedback pages for Canvas or Moodle",
        description="Pack the feedback pages for a download of submissions into a zip, named like "
        "the submitted notebooks, so that Canvas and Moodle assign them to students. The exit "
        "status is 1 if some submissions have no feedback.",
        examples=("vramlab feedback submissions.zip --output feedback.zip",),
    )
    add_source(parser)
    parser.add_argument("-o", "--output", type=Path, required=True, help="zip file to write")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Pack them, and list what became of each; answer the exit status.

    Raises:
        NoCourseError: no course here.
        UnusableParcelError: the source cannot be opened.
        VramlabError: the assignment is unknown.
    """
    with working("packing feedback"):
        from vramlab_classroom.commands.collect import asked_for
        from vramlab_classroom.lms.returning import feedback_zip
        from vramlab_classroom.nbgrader.course import find_course

        course = find_course()
        known, layout, assignment = asked_for(arguments, course)
        items = feedback_zip(
            arguments.source,
            arguments.output,
            course.feedback,
            known,
            layout=layout,
            assignment=assignment,
        )
    return print_items(items, "packed", "NOT PACKED")
