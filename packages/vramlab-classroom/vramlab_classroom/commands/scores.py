"""`vramlab scores`: the scores of a class as CSV, also for Canvas and Moodle.

$ vramlab scores 02 -o scores.csv
$ vramlab scores --canvas exported.csv -o import.csv
$ vramlab scores 02 --moodle worksheet.csv -o upload.csv
"""

from __future__ import annotations

import argparse
from pathlib import Path

from vramlab.errors import VramlabError
from vramlab.progress import working
from vramlab.streams import print_error

_EXIT_OK = 0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `scores` to the command line."""
    parser = subparsers.add_parser(
        "scores",
        help="export the scores of a class as CSV",
        description="Export the scores in the gradebook as CSV, one line per student and "
        "assignment. A submission that could not be graded gets an empty field and a reason, never "
        "0. For Canvas and Moodle, the scores are filled into a file exported from there.",
        examples=(
            "vramlab scores 02 --output scores.csv",
            "vramlab scores --canvas gradebook.csv --output filled.csv",
        ),
    )
    parser.add_argument(
        "assignment", nargs="*", help="number or name of the assignment, such as 02 (default: all)"
    )
    parser.add_argument("-o", "--output", type=Path, help="CSV file to write (default: print)")
    target = parser.add_mutually_exclusive_group()
    target.add_argument(
        "--canvas", type=Path, metavar="FILE", help="gradebook exported from Canvas (CSV)"
    )
    target.add_argument(
        "--moodle",
        type=Path,
        metavar="FILE",
        help="grading worksheet of one assignment, exported from Moodle",
    )
    parser.add_argument("--db", metavar="URL", help="gradebook (default: the course's gradebook)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Write the scores; answer the exit status.

    Raises:
        NoCourseError: no course here.
        UnknownAssignmentError: the gradebook has no such assignment.
        NotAnExportError: the file to fill in is not what it should be.
        PointsDifferError: there, the assignment is worth other points.
    """
    if arguments.moodle and len(arguments.assignment) != 1:
        raise VramlabError("a grading worksheet of Moodle is for one assignment: name it")
    with working("reading the gradebook"):
        from nbgrader.api import Gradebook

        from vramlab_classroom.lms.gradebook_files import fill_canvas, fill_moodle
        from vramlab_classroom.nbgrader.course import find_course
        from vramlab_classroom.nbgrader.scores import ScoreStatus, find_assignment, read_scores
        from vramlab_classroom.nbgrader.scores_csv import scores_csv

        course = find_course(db_url=arguments.db)
        with Gradebook(course.db_url) as gradebook:
            names = [find_assignment(gradebook, word) for word in arguments.assignment]
            scores = read_scores(gradebook, names)
    unmatched: tuple[str, ...] = ()
    if arguments.canvas:
        merged = fill_canvas(scores, _read(arguments.canvas))
        text, unmatched = merged.text, merged.unmatched
    elif arguments.moodle:
        merged = fill_moodle(scores, _read(arguments.moodle))
        text, unmatched = merged.text, merged.unmatched
    else:
        text = scores_csv(scores)
    if arguments.output:
        arguments.output.write_text(text, encoding="utf-8", newline="")
    else:
        print(text, end="")
    for student in unmatched:
        _say(f"{student} submitted, but has no row in the exported file", arguments)
    empty = [score for score in scores if score.status is ScoreStatus.UNGRADED]
    for score in empty:
        _say(f"{score.student}, {score.assignment}: no score: {score.reason}", arguments)
    return _EXIT_OK


def _say(line: str, arguments: argparse.Namespace) -> None:
    """Tell it where it does not get into the CSV."""
    if arguments.output:
        print(line)
    else:
        print_error(line)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        raise VramlabError(f"there is no file {path}") from None
    except UnicodeDecodeError:
        raise VramlabError(f"{path} is not text in UTF-8: export it as CSV in UTF-8") from None
