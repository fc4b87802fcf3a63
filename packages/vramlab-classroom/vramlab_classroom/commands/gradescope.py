"""`vramlab gradescope`: grades an exercise on Gradescope.

$ vramlab gradescope pack 02 -o autograder.zip     # upload this as the autograder
$ vramlab gradescope run 02 --submission DIR --seed FILE --output results.json
"""

from __future__ import annotations

import argparse
from pathlib import Path

from vramlab.progress import working

_EXIT_OK = 0


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `gradescope` to the command line."""
    parser = subparsers.add_parser(
        "gradescope",
        help="create an autograder for Gradescope",
        description="Create an autograder zip for Gradescope, or grade one submission like that "
        "autograder and write results.json.",
        examples=("vramlab gradescope pack 02",),
    )
    steps = parser.add_subparsers(title="steps", metavar="STEP", required=True)
    packing = steps.add_parser(
        "pack",
        help="create the autograder zip of an exercise",
        description="Create the autograder zip of an exercise.",
        examples=("vramlab gradescope pack 02 --index https://download.pytorch.org/whl/cpu",),
    )
    packing.add_argument("exercise", help="number or name of the exercise, such as 02")
    packing.add_argument(
        "-o", "--output", type=Path, help="zip file to write (default: gradescope-EXERCISE.zip)"
    )
    packing.add_argument(
        "--index",
        metavar="URL",
        help="additional package index for pip; PyTorch's CPU index saves several GiB",
    )
    packing.set_defaults(run=_pack)
    running = steps.add_parser(
        "run",
        help="grade one submission and write results.json",
        description="Grade one submission and write results.json.",
    )
    running.add_argument("exercise", help="number or name of the exercise, such as 02")
    running.add_argument(
        "--submission", type=Path, required=True, help="folder with the submission"
    )
    running.add_argument(
        "--seed", type=Path, required=True, help="file with the seed of the hidden cases"
    )
    running.add_argument("--output", type=Path, required=True, help="results.json to write")
    running.set_defaults(run=_run)


def _pack(arguments: argparse.Namespace) -> int:
    """Make the zip; answer the exit status.

    Raises:
        NoCourseError: no course here.
        UnknownExerciseError: no exercise of that name.
    """
    with working(f"packing {arguments.exercise}"):
        from vramlab_classroom.judge.exercises import find_exercise
        from vramlab_classroom.judge.seeds import hidden_seed
        from vramlab_classroom.lms.gradescope_zip import autograder_zip
        from vramlab_classroom.nbgrader.course import find_course

        course = find_course()
        name = find_exercise(arguments.exercise).name
        content = autograder_zip(
            course.root, name, hidden_seed(course.seed_file), index_url=arguments.index
        )
    output = arguments.output or Path(f"gradescope-{name}.zip")
    output.touch(mode=0o600)  # it holds the seed
    output.write_bytes(content)
    print(
        f"{output}: upload it as the autograder of {name}. Give the container 2 GB of memory or "
        "more. It holds the seed of the hidden cases: keep it from students."
    )
    return _EXIT_OK


def _run(arguments: argparse.Namespace) -> int:
    """Grade; answer the exit status, which is 0 also if the submission could not be graded."""
    import json
    import time

    from vramlab_classroom.judge.exercises import find_exercise
    from vramlab_classroom.judge.seeds import hidden_seed
    from vramlab_classroom.lms.gradescope import details, mark_folder, results

    arguments.output.unlink(missing_ok=True)
    start = time.monotonic()
    name = find_exercise(arguments.exercise).name
    with working(f"grading {name}"):
        outcome = mark_folder(arguments.submission, name, hidden_seed(arguments.seed))
    print(details(outcome.marked))
    found = results(outcome, time.monotonic() - start)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps(found, indent=2), encoding="utf-8")
    return _EXIT_OK
