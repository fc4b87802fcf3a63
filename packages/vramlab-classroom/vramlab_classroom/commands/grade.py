"""`vramlab grade`: grades a class.

$ vramlab grade
$ vramlab grade 02 --students ada 'b*' --workers 4
$ vramlab grade --cluster tcp://head:8786 --db postgresql://teacher@db/course
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from typing import TYPE_CHECKING

from vramlab.garbage import lasting_imports
from vramlab.option_values import at_least_one
from vramlab.progress import working
from vramlab_classroom.run.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vramlab_classroom.run.run import ClassOutcome
    from vramlab_classroom.run.submissions import Stray

_EXIT_OK = 0
_EXIT_NEEDS_HUMAN = 1
_MOST_SHOWN = 50
_TRACEBACK = "Traceback (most recent call last):\n"
_SECONDS_PER_MINUTE = 60


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `grade` to the command line."""
    parser = subparsers.add_parser(
        "grade",
        help="grade the submissions of a class",
        description="Grade all submissions in autograder/submitted/, write the scores to "
        "nbgrader's gradebook, and create feedback pages. Unchanged submissions keep their scores, "
        "so an interrupted run continues where it stopped. The exit status is 0 if every "
        "submission has a score, and 1 if some need manual grading.",
        allow_abbrev=False,
        examples=("vramlab grade 02", "vramlab grade --students 'b*' --workers 4"),
    )
    parser.add_argument(
        "assignments",
        nargs="*",
        metavar="ASSIGNMENT",
        help="assignment to grade, such as 02 or 02_pages_and_blocks (default: all submitted)",
    )
    parser.add_argument(
        "--students",
        nargs="+",
        default=[],
        metavar="NAME",
        help="students to grade; patterns such as 'b*' are allowed (default: all)",
    )
    parser.add_argument(
        "--workers",
        type=at_least_one,
        metavar="N",
        help="number of worker processes (default: one per CPU)",
    )
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="Dask scheduler to grade on, such as tcp://head:8786 (default: this machine)",
    )
    parser.add_argument(
        "--db",
        metavar="URL",
        help="gradebook, such as postgresql://teacher@host/course (default: $VRAMLAB_GRADEBOOK, or "
        "the one in autograder/nbgrader_config.py)",
    )
    parser.add_argument(
        "--sandbox",
        metavar="KIND",
        help="sandbox for submissions: bubblewrap, docker, podman or limits (default: bubblewrap "
        "if it works, else limits)",
    )
    parser.add_argument(
        "--image",
        default="vramlab",
        help="container image for docker and podman (default: %(default)s)",
    )
    parser.add_argument("--again", action="store_true", help="grade unchanged submissions again")
    parser.add_argument("--no-feedback", action="store_true", help="do not create feedback pages")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Grade and report; answer the exit status.

    Raises:
        VramlabError: nothing can be graded, or the run could not go on.
    """
    with working("reading the course"), lasting_imports():
        from vramlab_classroom.nbgrader.course import find_course

        course = find_course(db_url=arguments.db)

        from vramlab_classroom.run.run import Options, grade

    options = Options(
        assignments=tuple(arguments.assignments),
        students=tuple(arguments.students),
        workers=arguments.workers,
        cluster=arguments.cluster,
        sandbox=arguments.sandbox,
        image=arguments.image,
        again=arguments.again,
        feedback=not arguments.no_feedback,
    )
    outcome = grade(course, options, StartAndProgress)
    print(summary(outcome))
    return _EXIT_NEEDS_HUMAN if outcome.needs_human else _EXIT_OK


class StartAndProgress(Progress):
    """Shows also that the run begins: the first workers take a while before they grade anything."""

    def __init__(self, total: int) -> None:
        """Begin.

        Args:
            total: number of submissions.
        """
        super().__init__(total)
        self._start = ExitStack()
        self._start.enter_context(working("starting to grade"))

    def add(self, *, graded: bool, needs_human: bool = False) -> None:
        """Count a submission; the start is over."""
        self._start.close()
        super().add(graded=graded, needs_human=needs_human)

    def say(self, text: str) -> None:
        """Tell something else, in lines of its own; the start is over."""
        self._start.close()
        super().say(text)

    def end(self) -> None:
        """Leave the line to others."""
        self._start.close()
        super().end()


def summary(outcome: ClassOutcome) -> str:
    """Describe what came of a run, and what a human has to look at."""
    submissions = "submission" if outcome.graded == 1 else "submissions"
    line = f"graded {outcome.graded} {submissions} in {_duration(outcome.seconds)}"
    if outcome.graded and outcome.seconds:
        line += f" ({outcome.graded / outcome.seconds * _SECONDS_PER_MINUTE:.0f} per minute)"
    lines = [f"{line}; {outcome.kept} were graded before"]
    if outcome.attention:
        lines.append(f"for a human to look at ({len(outcome.attention)}):")
        for each in outcome.attention[:_MOST_SHOWN]:
            reason = " ".join(_without_frames(each.reason).split())
            about = f" {each.about}" if each.about else ""
            lines.append(f"  {each.student}, {each.assignment}{about}: {reason}")
        if len(outcome.attention) > _MOST_SHOWN:
            lines.append(f"  and {len(outcome.attention) - _MOST_SHOWN} more")
    if outcome.strays:
        lines.append(f"not graded, because it is no submission ({len(outcome.strays)}):")
        lines += _strays(outcome.strays)
    if outcome.left:
        lines.append(f"not copied to autograded/ with the notebook ({len(outcome.left)}):")
        lines += _strays(outcome.left)
    return "\n".join(lines)


def _without_frames(reason: str) -> str:
    """Leave out of a traceback where it happened: what happened stands below that."""
    before = reason.partition(_TRACEBACK)[0]
    frames = reason.rpartition(_TRACEBACK)[2].splitlines()
    what = [line for line in frames if not line.startswith(" ")]
    return f"{before}{what[0]}" if _TRACEBACK in reason and what else reason


def _strays(strays: Sequence[Stray]) -> list[str]:
    more = [f"  and {len(strays) - _MOST_SHOWN} more"] if len(strays) > _MOST_SHOWN else []
    # A file's name can be anything, also what a terminal would obey.
    return [f"  {str(stray.path)!a}: {stray.reason}" for stray in strays[:_MOST_SHOWN]] + more


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), _SECONDS_PER_MINUTE)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
