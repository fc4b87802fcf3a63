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
        help="make an autograder for Gradescope",
        description="Make the zip that Gradescope wants as an autograder; or grade one submission "
        "and write its results.json, as that autograder does.",
    )
    steps = parser.add_subparsers(title="steps", metavar="STEP", required=True)
    packing = steps.add_parser("pack", help="make the autograder zip of an exercise")
    packing.add_argument("exercise", help="its number or name, such as 02")
    packing.add_argument(
        "-o", "--output", type=Path, help="the zip; by default gradescope-EXERCISE.zip"
    )
    packing.add_argument(
        "--index",
        metavar="URL",
        help="where pip also looks for packages: the index of PyTorch's builds without CUDA, as "
        "its install page names it, spares several GiB",
    )
    packing.set_defaults(run=_pack)
    running = steps.add_parser("run", help="grade one submission; write its results.json")
    running.add_argument("exercise", help="its number or name, such as 02")
    running.add_argument("--submission", type=Path, required=True, help="the folder handed in")
    running.add_argument(
        "--seed", type=Path, required=True, help="a file with the seed of the hidden cases"
    )
    running.add_argument("--output", type=Path, required=True, help="the results.json to write")
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
