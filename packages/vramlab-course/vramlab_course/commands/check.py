"""`vramlab check`: judges the answers in an exercise notebook on the visible cases.

$ vramlab check 02
$ vramlab check 02 --notebook my-copy.ipynb
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from vramlab.errors import VramlabError
from vramlab.progress import working

_EXIT_OK = 0
_EXIT_NOT_SOLVED = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb `check` to the command line."""
    parser = subparsers.add_parser(
        "check",
        help="check your answers to an exercise",
        description="Check the answers in an exercise notebook with the visible test cases. The "
        "exit status is 0 if every task is solved, else 1.",
        examples=("vramlab check 02",),
    )
    parser.add_argument(
        "exercise", help="number or name of the exercise, such as 02 or 02_pages_and_blocks"
    )
    parser.add_argument(
        "--notebook",
        type=Path,
        metavar="FILE",
        help="notebook to check (default: exercises/NAME/NAME.ipynb in this folder or a parent)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the verdicts; answer the exit status.

    Raises:
        UnknownExerciseError: no exercise of that name.
        VramlabError: its notebook is not there, or is none.
    """
    with working("reading the notebook"):
        from vramlab_classroom.judge.exercises import find_exercise
        from vramlab_classroom.judge.job_pool import JobPool
        from vramlab_classroom.judge.judge import Judge
        from vramlab_classroom.judge.notebooks import cells_of_answers

        exercise = find_exercise(arguments.exercise)
        notebook = _read(arguments.notebook or _find_notebook(exercise.name))
        cells = cells_of_answers(notebook, [task.name for task in exercise.tasks])
    with working("checking") as step, JobPool() as pool:
        judge = Judge(pool)
        earned: float = 0
        for task in exercise.tasks:
            step.tell(task.name)
            verdict = judge.judge(exercise, task.name, cells[task.name])
            earned += verdict.score or 0
            step.say(f"{verdict}\n")
    print(f"{exercise.name}: {earned:g} of {exercise.points} points on the visible cases")
    return _EXIT_OK if earned == exercise.points else _EXIT_NOT_SOLVED


def _find_notebook(name: str) -> Path:
    here = Path.cwd()
    for folder in (here, *here.parents):
        path = folder / "exercises" / name / f"{name}.ipynb"
        if path.exists():
            return path
    raise VramlabError(
        f"there is no exercises/{name}/{name}.ipynb in {here} or above it: "
        "go to the course's folder, or pass the notebook with --notebook"
    )


def _read(path: Path) -> dict[str, Any]:
    import nbformat

    try:
        notebook: dict[str, Any] = nbformat.read(path, as_version=4)
    except FileNotFoundError:
        raise VramlabError(f"there is no notebook {path}") from None
    except (nbformat.reader.NotJSONError, UnicodeDecodeError):
        raise VramlabError(f"{path} is not a notebook: it is not JSON") from None
    return notebook
